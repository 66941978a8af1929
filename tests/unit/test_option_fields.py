from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointRetention,
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    HashMapStateBackend,
    NoRestart,
    RocksDBStateBackend,
    config,
)
from checkdam.checkpoint.settings import IN_MEMORY, settle_checkpoints
from checkdam.config import ConfigOption, Configuration, Origin
from checkdam.errors import ConfigError
from checkdam.option_fields import OptionFields, chosen_in_code, options_from
from checkdam.runtime.restart import restart_strategy_from

SECOND = timedelta(seconds=1)

EVERY_OPTION: list[tuple[type[OptionFields], dict[str, tuple[str, object, str, object]]]] = [
    # field: (key, value in code, text in the file, the same in Python)
    (
        CheckpointConfig,
        {
            "interval": ("execution.checkpointing.interval", 7 * SECOND, "1 min", 60 * SECOND),
            "mode": (
                "execution.checkpointing.mode",
                CheckpointingMode.EXACTLY_ONCE,
                "AT_LEAST_ONCE",
                CheckpointingMode.AT_LEAST_ONCE,
            ),
            "min_pause": ("execution.checkpointing.min-pause", 2 * SECOND, "3 s", 3 * SECOND),
            "timeout": ("execution.checkpointing.timeout", 2 * SECOND, "3 s", 3 * SECOND),
            "tolerable_failures": ("execution.checkpointing.tolerable-failed-checkpoints", 2, "3", 3),
            "retention": (
                "execution.checkpointing.externalized-checkpoint-retention",
                CheckpointRetention.DELETE_ON_CANCELLATION,
                "RETAIN_ON_CANCELLATION",
                CheckpointRetention.RETAIN_ON_CANCELLATION,
            ),
            "num_retained": ("state.checkpoints.num-retained", 2, "3", 3),
            "storage": ("state.checkpoints.dir", "file:///code", "file:///file", "file:///file"),
        },
    ),
    (CheckpointConfig, {"max_concurrent": ("execution.checkpointing.max-concurrent-checkpoints", 2, "3", 3)}),
    (
        FixedDelayRestart,
        {
            "attempts": ("restart-strategy.fixed-delay.attempts", 2, "3", 3),
            "delay": ("restart-strategy.fixed-delay.delay", 2 * SECOND, "3 s", 3 * SECOND),
        },
    ),
    (
        ExponentialDelayRestart,
        {
            "initial_backoff": ("restart-strategy.exponential-delay.initial-backoff", 2 * SECOND, "3 s", 3 * SECOND),
            "max_backoff": ("restart-strategy.exponential-delay.max-backoff", 20 * SECOND, "30 s", 30 * SECOND),
            "backoff_multiplier": ("restart-strategy.exponential-delay.backoff-multiplier", 2.0, "3", 3.0),
            "jitter_factor": ("restart-strategy.exponential-delay.jitter-factor", 0.2, "0.3", 0.3),
            "attempts_before_reset_backoff": (
                "restart-strategy.exponential-delay.attempts-before-reset-backoff",
                2,
                "3",
                3,
            ),
        },
    ),
    (
        FailureRateRestart,
        {
            "max_failures": ("restart-strategy.failure-rate.max-failures-per-interval", 2, "3", 3),
            "interval": ("restart-strategy.failure-rate.failure-rate-interval", 2 * SECOND, "3 s", 3 * SECOND),
            "delay": ("restart-strategy.failure-rate.delay", 2 * SECOND, "3 s", 3 * SECOND),
        },
    ),
    (RocksDBStateBackend, {"memory": ("state.backend.rocksdb.memory.fixed-per-slot", 32 << 20, "64 mb", 64 << 20)}),
]


def from_file(tmp_path: Path, settings: dict[str, str], overrides: dict[str, str] | None = None) -> Configuration:
    file = tmp_path / "checkdam.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return Configuration.load(file, overrides)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [(kind, options, name) for kind, options in EVERY_OPTION for name in options],
    ids=lambda each: each if isinstance(each, str) else getattr(each, "__name__", ""),
)
def test_code_that_names_one_option_leaves_the_others_to_the_file(
    tmp_path: Path, kind: Any, options: dict[str, tuple[str, object, str, object]], named: str
) -> None:
    loaded = from_file(tmp_path, {key: text for key, _, text, _ in options.values()})

    held = options_from(kind, chosen_in_code(loaded, kind(**{named: options[named][1]})))

    for field, (_, in_code, _, in_file) in options.items():
        assert getattr(held, field) == (in_code if field == named else in_file), field


def test_every_option_comes_from_code_then_command_line_then_file_then_default(tmp_path: Path) -> None:
    loaded = from_file(
        tmp_path,
        {
            "state.checkpoints.num-retained": "3",
            "execution.checkpointing.timeout": "3 s",
            "execution.checkpointing.interval": "3 s",
        },
        {"execution.checkpointing.timeout": "2 s", "execution.checkpointing.interval": "2 s"},
    )

    held = chosen_in_code(loaded, CheckpointConfig(interval=SECOND))

    options: list[ConfigOption[Any]] = [
        config.CHECKPOINT_INTERVAL,
        config.CHECKPOINT_TIMEOUT,
        config.NUM_RETAINED_CHECKPOINTS,
        config.MAX_CONCURRENT_CHECKPOINTS,
    ]
    assert [(held.setting(option).value, held.setting(option).origin) for option in options] == [
        (SECOND, Origin.CODE),
        (2 * SECOND, Origin.COMMAND_LINE),
        (3, Origin.FILE),
        (1, Origin.DEFAULT),
    ]


def test_what_is_named_with_its_default_is_named(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, {"state.checkpoints.num-retained": "3", "execution.checkpointing.interval": "3 s"})

    held = CheckpointConfig.from_configuration(chosen_in_code(loaded, CheckpointConfig(num_retained=1, interval=None)))

    assert (held.num_retained, held.interval) == (1, None)


def test_no_storage_in_code_leaves_the_directory_to_the_file(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, {"state.checkpoints.dir": "file:///file"})

    held = CheckpointConfig.from_configuration(chosen_in_code(loaded, CheckpointConfig(storage=None)))

    assert held.storage == "file:///file"


def test_an_object_that_travels_still_knows_what_was_named() -> None:
    travelled = pickle.loads(pickle.dumps(CheckpointConfig(num_retained=1)))

    assert travelled == CheckpointConfig()
    assert [option.key for option, _ in travelled.named_options()] == [config.NUM_RETAINED_CHECKPOINTS.key]


@pytest.mark.parametrize(
    ("chosen", "option", "name"),
    [
        (NoRestart(), config.RESTART_STRATEGY, "none"),
        (FixedDelayRestart(), config.RESTART_STRATEGY, "fixed-delay"),
        (ExponentialDelayRestart(), config.RESTART_STRATEGY, "exponential-delay"),
        (FailureRateRestart(), config.RESTART_STRATEGY, "failure-rate"),
        (HashMapStateBackend(), config.STATE_BACKEND, "hashmap"),
        (RocksDBStateBackend(), config.STATE_BACKEND, "rocksdb"),
    ],
)
def test_the_class_chosen_in_code_wins_over_the_settings(chosen: Any, option: Any, name: str) -> None:
    loaded = Configuration.load(None, {"restart-strategy": "fixed-delay", "state.backend": "rocksdb"})

    setting = chosen_in_code(loaded, chosen).setting(option)

    assert (setting.value, setting.origin) == (name, Origin.CODE)


def test_what_only_fits_together_with_the_file_is_allowed_and_checked_with_it(tmp_path: Path) -> None:
    slow = ExponentialDelayRestart(initial_backoff=timedelta(minutes=5))
    strategy = "restart-strategy.exponential-delay.max-backoff"

    fits = chosen_in_code(from_file(tmp_path, {strategy: "10 min"}), slow)
    assert restart_strategy_from(fits, checkpointing=True) == ExponentialDelayRestart(
        initial_backoff=timedelta(minutes=5), max_backoff=timedelta(minutes=10)
    )
    with pytest.raises(ConfigError, match="max_backoff"):
        restart_strategy_from(chosen_in_code(Configuration(), slow), checkpointing=True)


def test_a_pause_in_the_file_shows_with_what_it_implies(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, {"execution.checkpointing.min-pause": "1 s"})

    held = settle_checkpoints(chosen_in_code(loaded, CheckpointConfig(max_concurrent=3)))

    setting = held.setting(config.MAX_CONCURRENT_CHECKPOINTS)
    assert (setting.value, setting.origin) == (1, Origin.FILE)


def _storage_of(configuration: Configuration) -> list[tuple[object, Origin]]:
    settled = settle_checkpoints(configuration)
    found = [settled.setting(option) for option in (config.CHECKPOINT_STORAGE, config.CHECKPOINT_DIR)]
    return [(each.value, each.origin) for each in found]


def test_the_kind_of_storage_that_shows_is_that_of_the_place_that_holds(tmp_path: Path) -> None:
    file = tmp_path / "checkdam.yaml"
    file.write_text("execution.checkpointing.storage: jobmanager\n")
    in_file = Configuration.load(file)
    in_code = chosen_in_code(in_file, CheckpointConfig(storage="/data"))
    file.write_text("execution.checkpointing.storage: filesystem\nstate.checkpoints.dir: /data\n")
    memory_in_code = chosen_in_code(Configuration.load(file), CheckpointConfig(storage="jobmanager"))
    as_directory = Configuration.load(None, {"state.checkpoints.dir": "jobmanager"})

    assert _storage_of(in_file) == [("jobmanager", Origin.FILE), (IN_MEMORY, Origin.FILE)]
    assert _storage_of(in_code) == [("filesystem", Origin.CODE), ("/data", Origin.CODE)]
    assert _storage_of(memory_in_code) == [("jobmanager", Origin.CODE), (IN_MEMORY, Origin.CODE)]
    assert _storage_of(as_directory) == [("jobmanager", Origin.COMMAND_LINE), (IN_MEMORY, Origin.COMMAND_LINE)]


@pytest.mark.parametrize(
    ("text", "command_line", "expected"),
    [
        ("state.backend: jobmanager\n", {}, "jobmanager"),
        ("state.backend: jobmanager\nstate.backend.type: rocksdb\n", {}, "filesystem"),
        ("state.backend: jobmanager\n", {"state.backend.type": "rocksdb"}, "filesystem"),
        ("state.backend: jobmanager\nexecution.checkpointing.storage: filesystem\n", {}, "filesystem"),
        ("execution.checkpointing.storage: jobmanager\n", {"state.backend.type": "rocksdb"}, "jobmanager"),
    ],
)
def test_an_old_name_of_a_backend_chooses_the_storage_only_while_it_is_the_backend(
    tmp_path: Path, text: str, command_line: dict[str, str], expected: str
) -> None:
    file = tmp_path / "checkdam.yaml"
    file.write_text(f"{text}state.checkpoints.dir: /data\n")

    configuration = Configuration.load(file, command_line)

    assert _storage_of(configuration)[0][0] == expected
