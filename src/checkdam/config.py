"""Settings under Flink's keys: the known options, the syntax of values, and the order of precedence.

Option by option, a value set in code wins over the command line (`-D key=value`), which wins over the file
(`checkdam.yaml`), which wins over the default. Spark's keys ("spark.…") are passed on without checks.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from checkdam.config_values import (
    BOOLEAN,
    DIRECTORIES,
    DURATION,
    MEMORY,
    PLACES,
    TEXT,
    ValueType,
    choice,
    integer,
    number,
    parse_as,
)
from checkdam.config_values import parse_memory_size as parse_memory_size
from checkdam.errors import ConfigError
from checkdam.flink_keys import holds_anyway, known_keys, reason_without_effect, refusal

T = TypeVar("T")


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """One setting. `aliases` are older names with the same meaning.

    `implied` are values that also set another setting if that is not given: name, key and value there.
    """

    key: str
    type: ValueType[Any]
    default: T
    description: str
    aliases: tuple[str, ...] = ()
    implied: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    unset: str | None = None  # the text that leaves it unset in Flink's files

    def parse(self, value: object, *, spelling: str | None = None, where: str = "") -> Any:
        """Parse a value. Raises ConfigError naming the key, the value and what is expected.

        None leaves an option unset if it is unset by default. `spelling` and `where` say how the user wrote it.
        """
        if value is None and self.default is None:
            return None
        return parse_as(self.type, f'setting "{spelling or self.key}"', value, where=where)


_CHECKPOINTING = "execution.checkpointing."
_RESTART = "restart-strategy."
_EXPONENTIAL = _RESTART + "exponential-delay."

CHECKPOINT_INTERVAL: ConfigOption[timedelta | None] = ConfigOption(
    _CHECKPOINTING + "interval",
    DURATION,
    None,
    "Time between the starts of two checkpoints; 0: one after every epoch; unset: only the final one.",
)
CHECKPOINT_MODE = ConfigOption(
    _CHECKPOINTING + "mode",
    choice("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "Whether sinks publish with the checkpoint that covers their output, or with every epoch.",
)
CHECKPOINT_TIMEOUT = ConfigOption(
    _CHECKPOINTING + "timeout", DURATION, timedelta(minutes=10), "A checkpoint that takes longer is aborted."
)
CHECKPOINT_MIN_PAUSE = ConfigOption(
    _CHECKPOINTING + "min-pause", DURATION, timedelta(0), "Minimum time between the end of a checkpoint and the next."
)
MAX_CONCURRENT_CHECKPOINTS = ConfigOption(
    _CHECKPOINTING + "max-concurrent-checkpoints", integer(1), 1, "How many checkpoints may be in progress at once."
)
TOLERABLE_FAILED_CHECKPOINTS = ConfigOption(
    _CHECKPOINTING + "tolerable-failed-checkpoints",
    integer(0),
    0,
    "How many checkpoints in a row may fail before the job fails over.",
)
CHECKPOINT_RETENTION = ConfigOption(
    _CHECKPOINTING + "externalized-checkpoint-retention",
    choice(
        "RETAIN_ON_CANCELLATION",
        "DELETE_ON_CANCELLATION",
        "NO_EXTERNALIZED_CHECKPOINTS",
        synonyms={"RETAIN_ON_FAILURE": "DELETE_ON_CANCELLATION"},
    ),
    "DELETE_ON_CANCELLATION",
    "Which checkpoints stay when the job ends.",
)
NUM_RETAINED_CHECKPOINTS = ConfigOption(
    _CHECKPOINTING + "num-retained",
    integer(1),
    1,
    "How many completed checkpoints are kept.",
    ("state.checkpoints.num-retained",),
)
CHECKPOINT_DIR: ConfigOption[str | None] = ConfigOption(
    _CHECKPOINTING + "dir",
    TEXT,
    None,
    "Directory or URI that holds the checkpoints.",
    ("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
CHECKPOINT_STORAGE: ConfigOption[str | None] = ConfigOption(
    _CHECKPOINTING + "storage",
    choice(
        "filesystem",
        "jobmanager",
        synonyms={
            "org.apache.flink.runtime.state.storage.FileSystemCheckpointStorageFactory": "filesystem",
            "org.apache.flink.runtime.state.storage.JobManagerCheckpointStorageFactory": "jobmanager",
        },
    ),
    None,
    "Where checkpoints are kept: in a directory, or in the driver's memory (jobmanager), from which only a failover "
    "can restore; unset: in the directory that is set.",
    ("state.checkpoint-storage",),
)
SAVEPOINT_DIR: ConfigOption[str | None] = ConfigOption(
    _CHECKPOINTING + "savepoint-dir",
    TEXT,
    None,
    "Directory or URI for savepoints.",
    ("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
SAVEPOINT_ALLOWED_DIRS: ConfigOption[str | None] = ConfigOption(
    "state.savepoints.allowed-dirs",
    PLACES,
    None,
    "Where else than in the savepoint directory, and below it, clients of REST may have savepoints written; unset: "
    "nowhere, but anywhere on a server without a token.",
)
RESTORE_PATH: ConfigOption[str | None] = ConfigOption(
    "execution.state-recovery.path",
    TEXT,
    None,
    "Savepoint or checkpoint to start from, as with `checkdam run -s`.",
    ("execution.savepoint.path",),
)
IGNORE_UNCLAIMED_STATE = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    default=False,
    description="Whether the state of operators that the job no longer has may be dropped, as with `checkdam run -n`.",
    aliases=("execution.savepoint.ignore-unclaimed-state",),
)
RESTORE_MODE = ConfigOption(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM", "LEGACY"),
    "NO_CLAIM",
    "Who owns the restored snapshot. NO_CLAIM: the user, the job only reads it; CLAIM: the job, which may delete it.",
    ("execution.savepoint-restore-mode",),
)
SUSPEND_GRACE_PERIOD = ConfigOption(
    "execution.suspend.grace-period",
    DURATION,
    timedelta(seconds=10),
    "How long a job may take for its last checkpoint after SIGTERM; less than its supervisor waits.",
)
RESTORE_FROM_LOCAL = ConfigOption(
    "execution.state-recovery.from-local",
    BOOLEAN,
    default=False,
    description="Whether slots keep a copy of their last snapshot on their machine, and restore from it after a"
    " failover if it is intact; only where slots share the driver's machine, and checkpoints are elsewhere.",
    aliases=("state.backend.local-recovery", _CHECKPOINTING + "local-backup.enabled"),
)
LOCAL_COPIES_DIR: ConfigOption[str | None] = ConfigOption(
    _CHECKPOINTING + "local-backup.dirs",
    DIRECTORIES,
    None,
    "Where slots keep the local copies; they take turns among several; unset: the temporary directory.",
    ("taskmanager.state.local.root-dirs",),
)
ALLOW_REPEATED_OUTPUT = ConfigOption(
    "execution.state-recovery.allow-repeated-output",
    BOOLEAN,
    default=False,
    description="Whether a job may restore an older checkpoint although a sink cannot withdraw later output.",
)
STATE_BACKEND = ConfigOption(
    "state.backend.type",
    choice(
        "hashmap",
        "rocksdb",
        synonyms={
            "filesystem": "hashmap",
            "jobmanager": "hashmap",
            "org.apache.flink.runtime.state.hashmap.HashMapStateBackendFactory": "hashmap",
            "org.apache.flink.runtime.state.filesystem.FsStateBackendFactory": "hashmap",
            "org.apache.flink.runtime.state.memory.MemoryStateBackendFactory": "hashmap",
            "org.apache.flink.contrib.streaming.state.RocksDBStateBackendFactory": "rocksdb",
            "org.apache.flink.contrib.streaming.state.EmbeddedRocksDBStateBackendFactory": "rocksdb",
            "org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackendFactory": "rocksdb",
        },
    ),
    "hashmap",
    "Where slots keep their working state: in memory, or on local disk behind a cache. Flink's older names filesystem "
    "and jobmanager are hashmap, and choose execution.checkpointing.storage where that is not set.",
    ("state.backend",),
    {
        "filesystem": (CHECKPOINT_STORAGE.key, "filesystem"),
        "jobmanager": (CHECKPOINT_STORAGE.key, "jobmanager"),
        "org.apache.flink.runtime.state.memory.memorystatebackendfactory": (CHECKPOINT_STORAGE.key, "jobmanager"),
    },
)
INCREMENTAL_CHECKPOINTS = ConfigOption(
    _CHECKPOINTING + "incremental",
    BOOLEAN,
    default=True,
    description="Whether checkpoints write only changes, where that is cheaper; false: every checkpoint is full.",
    aliases=("state.backend.incremental",),
)
ROCKSDB_MEMORY = ConfigOption(
    "state.backend.rocksdb.memory.fixed-per-slot",
    MEMORY,
    256 << 20,
    "Memory for all RocksDB state of a slot: cache and write buffers together.",
    ("taskmanager.memory.managed.size",),
)
ROCKSDB_LOCAL_DIR: ConfigOption[str | None] = ConfigOption(
    "state.backend.rocksdb.localdir",
    DIRECTORIES,
    None,
    "Where RocksDB keeps its working files; slots take turns among several; unset: the temporary directory.",
    ("state.backend.rocksdb.checkpointdir",),
)
MEMORY_STORAGE_MAX_SIZE: ConfigOption[int] = ConfigOption(
    _CHECKPOINTING + "memory-storage.max-state-size",
    MEMORY,
    5 << 20,
    "Largest state of a subtask in a checkpoint in memory, as in Flink's JobManagerCheckpointStorage.",
)
DEFAULT_PARALLELISM: ConfigOption[int | None] = ConfigOption(
    "parallelism.default",
    integer(1, 32768),
    None,
    "Subtasks of each operator; unset: as many as Spark has cores.",
    unset="-1",
)
MAX_PARALLELISM = ConfigOption(
    "pipeline.max-parallelism",
    integer(1, 32768),
    128,
    "Number of key groups; fixed by the first checkpoint.",
    ("execution.max-parallelism",),
    unset="-1",
)
PIPELINE_NAME: ConfigOption[str | None] = ConfigOption("pipeline.name", TEXT, None, "Name of the job.")
SPARK_MASTER = ConfigOption("spark.master", TEXT, "local[*]", "The Spark cluster to run on.")
RESTART_STRATEGY: ConfigOption[str | None] = ConfigOption(
    _RESTART + "type",
    choice(
        "none",
        "fixed-delay",
        "exponential-delay",
        "failure-rate",
        synonyms={
            "off": "none",
            "disable": "none",
            "fixeddelay": "fixed-delay",
            "exponentialdelay": "exponential-delay",
            "failurerate": "failure-rate",
        },
    ),
    None,
    "What to do after a failure; unset: exponential-delay with checkpoints, none without.",
    ("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = ConfigOption(_RESTART + "fixed-delay.attempts", integer(0), 1, "Restarts before giving up.")
FIXED_DELAY = ConfigOption(_RESTART + "fixed-delay.delay", DURATION, timedelta(seconds=1), "Wait before each restart.")
INITIAL_BACKOFF = ConfigOption(
    _EXPONENTIAL + "initial-backoff", DURATION, timedelta(seconds=1), "Wait before the first restart."
)
MAX_BACKOFF = ConfigOption(_EXPONENTIAL + "max-backoff", DURATION, timedelta(minutes=1), "Longest wait.")
BACKOFF_MULTIPLIER = ConfigOption(
    _EXPONENTIAL + "backoff-multiplier", number(1.0), 1.5, "Factor by which the wait grows with each failure."
)
RESET_BACKOFF_THRESHOLD = ConfigOption(
    _EXPONENTIAL + "reset-backoff-threshold",
    DURATION,
    timedelta(hours=1),
    "Time without failures after which the wait is reset.",
)
JITTER_FACTOR = ConfigOption(_EXPONENTIAL + "jitter-factor", number(0.0, 1.0), 0.1, "Share of the wait that is random.")
BACKOFF_ATTEMPTS: ConfigOption[int | None] = ConfigOption(
    _EXPONENTIAL + "attempts-before-reset-backoff",
    integer(1),
    None,
    "Restarts without a reset of the wait before giving up.",
)
MAX_FAILURES_PER_INTERVAL = ConfigOption(
    _RESTART + "failure-rate.max-failures-per-interval",
    integer(1),
    1,
    "Failures that are tolerated within the interval.",
)
FAILURE_RATE_INTERVAL = ConfigOption(
    _RESTART + "failure-rate.failure-rate-interval", DURATION, timedelta(minutes=1), "The interval of failure-rate."
)
FAILURE_RATE_DELAY = ConfigOption(
    _RESTART + "failure-rate.delay", DURATION, timedelta(seconds=1), "Wait before each restart."
)
FAIL_ON_REPEATED_REJECTION = ConfigOption(
    "execution.fail-on-repeated-rejection",
    BOOLEAN,
    default=False,
    description="Whether a job fails, whatever its restart strategy, when a function raises the same error on the same"
    " record again after a restart.",
)
HEARTBEAT_INTERVAL = ConfigOption(
    "heartbeat.interval", DURATION, timedelta(seconds=10), "Time between two heartbeats of a slot, or of the JVM."
)
HEARTBEAT_TIMEOUT = ConfigOption(
    "heartbeat.timeout",
    DURATION,
    timedelta(seconds=50),
    "A slot, driver or JVM without a heartbeat for longer counts as lost; longer than heartbeat.interval.",
)
CANCELLATION_TIMEOUT = ConfigOption(
    "task.cancellation.timeout",
    DURATION,
    timedelta(minutes=3),
    "A job that makes no progress for longer while it ends or fails over, fails; 0: no limit.",
    ("task.cancellation-timeout",),
)

_REST = "rest."
REST_PORT = ConfigOption(
    _REST + "port",
    integer(0, 65535, example=8081),
    8081,
    "Port of the REST server; the next free one if it is taken; 0: any.",
)
REST_BIND_PORT: ConfigOption[str | None] = ConfigOption(
    _REST + "bind-port", TEXT, None, 'Ports the REST server may use, such as "8081,8085-8090"; unset: rest.port.'
)
REST_ADDRESS: ConfigOption[str | None] = ConfigOption(
    _REST + "address",
    TEXT,
    None,
    "Host name under which clients reach the REST server; unset: the address it listens on.",
)
REST_BIND_ADDRESS = ConfigOption(
    _REST + "bind-address",
    TEXT,
    "localhost",
    "Address the REST server listens on; one that other machines can reach needs rest.auth.token.",
)
REST_AUTH_TOKEN: ConfigOption[str | None] = ConfigOption(
    _REST + "auth.token", TEXT, None, 'What every request must carry as "Authorization: Bearer …"; unset: nothing.'
)
REST_AUTH_TOKEN_FILE: ConfigOption[str | None] = ConfigOption(
    _REST + "auth.token-file",
    TEXT,
    None,
    "File whose first line is the token; a token on the command line is visible to all users of the machine.",
)
REST_ASYNC_STORE_DURATION = ConfigOption(
    _REST + "async.store-duration",
    DURATION,
    timedelta(minutes=5),
    "How long the result of an asynchronous operation, such as a savepoint, can be queried.",
)
REST_MAX_CONTENT_LENGTH = ConfigOption(
    _REST + "server.max-content-length", MEMORY, 16 << 20, "Largest accepted body of a request."
)
WEB_ALLOW_ORIGIN: ConfigOption[str | None] = ConfigOption(
    "web.access-control-allow-origin",
    TEXT,
    None,
    "Access-Control-Allow-Origin of answers to reads; unset: none, so that other sites' pages cannot read the state.",
)
WEB_REFRESH_INTERVAL = ConfigOption(
    "web.refresh-interval", DURATION, timedelta(seconds=3), "How often the page updates."
)
WEB_CHECKPOINTS_HISTORY = ConfigOption(
    "web.checkpoints.history",
    integer(0),
    200,  # Flink keeps 10, which do not last until the next morning; 200 cost little
    "How many checkpoints the history shows.",
)
WEB_EXCEPTION_HISTORY = ConfigOption(
    "web.exception-history-size", integer(0), 16, "How many failures of a job the history shows."
)

_LOG = "env.log."
LOG_DIR: ConfigOption[str | None] = ConfigOption(
    _LOG + "dir",
    TEXT,
    None,
    "Local directory of the log files, with one directory for each job; unset: beside the checkpoints.",
)
LOG_LEVEL = ConfigOption(
    _LOG + "level",
    choice("ERROR", "WARN", "INFO", "DEBUG", synonyms={"WARNING": "WARN", "FATAL": "ERROR", "TRACE": "DEBUG"}),
    "INFO",
    "Level from which records of Python's logging go to the log files.",
)
LOG_MAX_SIZE = ConfigOption(_LOG + "max-size", MEMORY, 10 << 20, "Size at which a log file is set aside.")
LOG_MAX_FILES = ConfigOption(
    _LOG + "max", integer(0, 999), 5, "How many log files that were set aside are kept of each."
)

OPTIONS: tuple[ConfigOption[Any], ...] = tuple(v for v in list(globals().values()) if isinstance(v, ConfigOption))
"""Every setting that Checkdam reads, in the order above."""

_NEAR = 0.75  # how similar a key must be to be suggested: most share their first words
_ON_COMMAND_LINE = " on the command line"
_IMPLIED = "implied "  # prefix of a setting's key in a layer: the value that another setting implies for it
_KEYS = frozenset(option.key for option in OPTIONS)
_BY_SPELLING = {spelling: option for option in OPTIONS for spelling in (option.key, *option.aliases)}


def _instead_of(key: str) -> str:
    """Return the hint for an unknown key: the key that is meant, if one is near."""
    known = [*_BY_SPELLING, *known_keys()]
    ending = [each for each in known if each.endswith("." + key)]
    beginning = [each for each in known if each.startswith(key + ".")]
    near = (
        ending or (beginning if len(beginning) == 1 else []) or difflib.get_close_matches(key, known, n=1, cutoff=_NEAR)
    )
    return f'Did you mean "{near[0]}"?' if near else "No known key is like it: docs/configuration.md lists them."


def _layer(entries: Sequence[tuple[str, object, str]]) -> dict[str, Any]:
    """Check (spelling, value, where) entries; return them with canonical keys and Python values.

    Of two spellings of one setting the newer wins, as in Flink.
    """
    layer: dict[str, Any] = {}
    for spelling, value, where in sorted(entries, key=_newness):
        option = _BY_SPELLING.get(spelling)
        if option is not None and isinstance(value, tuple) and option.type not in (DIRECTORIES, PLACES):
            raise ConfigError(f'setting "{spelling}"{where} is not a single value', hint='Write "key: value".')
        if option is not None and option.unset is not None and _as_text(value).strip() == option.unset:
            if option.default is None:  # also where a file or the command line sets a value
                layer[option.key] = None
        elif option is not None:
            layer[option.key] = option.parse(value, spelling=spelling, where="" if where == _ON_COMMAND_LINE else where)
            layer.update(_implied(option, value))
        elif spelling.startswith("spark."):
            layer[spelling] = _as_text(value)
        elif reason_without_effect(spelling) is not None:
            refused = refusal(spelling, _as_text(value))
            if refused is not None:
                raise ConfigError(
                    f'setting "{spelling}"{where} cannot be "{value}": {refused.reason}', hint=refused.hint
                )
            layer[spelling] = _as_text(value)
        else:
            raise ConfigError(f'unknown setting "{spelling}"{where}', hint=_instead_of(spelling))
    return layer


def _newness(entry: tuple[str, object, str]) -> int:
    """Return the rank of an entry's spelling among those of its setting, the oldest first."""
    option = _BY_SPELLING.get(entry[0])
    return 0 if option is None else -(option.key, *option.aliases).index(entry[0])


def _implied(option: ConfigOption[Any], value: object) -> dict[str, Any]:
    """Return the other settings that one value implies. None leaves a setting unchanged."""
    implied = {_IMPLIED + key: None for key, _ in option.implied.values()}
    if (chosen := option.implied.get(str(value).strip().lower())) is not None:
        implied[_IMPLIED + chosen[0]] = _BY_SPELLING[chosen[0]].parse(chosen[1])
    return implied


def _as_text(value: object) -> str:
    if isinstance(value, tuple):
        return ";".join(map(str, value))  # as Flink writes a list in one line
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_override(text: str) -> tuple[str, str]:
    """Split the "key=value" of `-D`; the value may hold further "=". Raises ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f'"{text}" is not a setting',
            hint="Write -D key=value, for example -D execution.checkpointing.interval=60s.",
        )
    return key.strip(), value.strip()


class Origin(Enum):
    """The source of a setting's value."""

    CODE = "code"
    COMMAND_LINE = "command line"
    FILE = "file"
    CHECKPOINT = "checkpoint"  # the one that a job is restored from
    DEFAULT = "default"

    def outranks(self, other: Origin) -> bool:
        ranked = list(Origin)
        return ranked.index(self) < ranked.index(other)


@dataclass(frozen=True)
class Setting:
    """The effective value of one option, and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Configuration:
    """Settings from code, command line and file, in this order of precedence. Immutable; every value is valid."""

    _code: Mapping[str, Any] = field(default_factory=dict)
    _command_line: Mapping[str, Any] = field(default_factory=dict)
    _file: Mapping[str, Any] = field(default_factory=dict)
    _settled: Mapping[str, Setting] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Configuration:
        """Load a settings file, or one of Flink, and the command line's settings. Raises ConfigError."""
        command_line = [(key, value, _ON_COMMAND_LINE) for key, value in (overrides or {}).items()]
        if file is None:
            return cls(_command_line=_layer(command_line))
        from checkdam.config_file import read_settings_file  # loads the YAML library, only if there is a file

        return cls(_command_line=_layer(command_line), _file=_layer(read_settings_file(file)))

    def get(self, option: ConfigOption[T]) -> T:
        value: T = self.setting(option).value
        return value

    def setting(self, option: ConfigOption[Any]) -> Setting:
        """Return the effective value of an option with its origin."""
        return self.given().get(option.key) or Setting(option.default, Origin.DEFAULT)

    def is_set(self, option: ConfigOption[Any]) -> bool:
        """Return whether the setting was given a value."""
        return any(option.key in layer for layer in (self._code, self._command_line, self._file))

    def with_value(self, key: str | ConfigOption[Any], value: object) -> Configuration:
        """Return a copy in which code has set `key`; accepts text and Python values (timedelta, int, enum …)."""
        spelling = key if isinstance(key, str) else key.key
        return replace(self, _code={**self._code, **_layer([(spelling, value, "")])})

    def settled(self, option: ConfigOption[Any], value: object, origin: Origin | None = None) -> Configuration:
        """Return a copy in which the option has this value, with which the job runs, regardless of other sources.

        Without `origin` it keeps that of the replaced value.
        """
        setting = Setting(option.parse(value), origin or self.setting(option).origin)
        return replace(self, _settled={**self._settled, option.key: setting})

    def given(self) -> dict[str, Setting]:
        """Return every setting that was given or settled, by its key."""
        layers = ((Origin.FILE, self._file), (Origin.COMMAND_LINE, self._command_line), (Origin.CODE, self._code))
        found = {key: Setting(value, origin) for origin, layer in layers for key, value in layer.items()}
        for name in [each for each in found if each.startswith(_IMPLIED)]:
            implied = found.pop(name)
            if implied.value is not None:
                found.setdefault(name.removeprefix(_IMPLIED), implied)
        return {**found, **self._settled}

    def effective(self) -> dict[str, Setting]:
        """Return every option with its effective value, and every other setting that was given."""
        return {option.key: self.setting(option) for option in OPTIONS} | self.given()

    def without_effect(self) -> dict[str, list[str]]:
        """Return the given Flink settings that have no effect here, by the reason; without those that ask for the
        actual behaviour.
        """
        found: dict[str, list[str]] = {}
        for key, setting in sorted(self.given().items()):
            reason = None if key in _KEYS else reason_without_effect(key)
            if reason is not None and not holds_anyway(key, setting.value):
                found.setdefault(reason, []).append(key)
        return found

    def spark_settings(self) -> dict[str, str]:
        """Return every "spark.…" setting that was given, for Spark to read."""
        return {key: setting.value for key, setting in self.given().items() if key.startswith("spark.")}
