from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam import config, config_values
from checkdam.config import OPTIONS, ConfigOption, Configuration, parse_memory_size, parse_override
from checkdam.errors import ConfigError


def from_text(tmp_path: Path, text: str, overrides: dict[str, str] | None = None) -> Configuration:
    file = tmp_path / "checkdam.yaml"
    file.write_text(text, encoding="utf-8")
    return Configuration.load(file, overrides)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60s", timedelta(seconds=60)),
        ("1 min", timedelta(minutes=1)),
        ("500ms", timedelta(milliseconds=500)),
        ("250", timedelta(milliseconds=250)),
        ("0", timedelta(0)),
        ("1.5 h", timedelta(minutes=90)),
        (" 2 Days ", timedelta(days=2)),
    ],
)
def test_durations_are_read_as_flink_writes_them(text: str, expected: timedelta) -> None:
    assert (
        Configuration.load(None, {"execution.checkpointing.interval": text}).get(config.CHECKPOINT_INTERVAL) == expected
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("256 mb", 256 << 20), ("1g", 1 << 30), ("1024", 1024), ("64KB", 64 << 10), ("2 TiB", 2 << 40), (12, 12)],
)
def test_memory_sizes_have_binary_units(text: object, expected: int) -> None:
    assert parse_memory_size(text) == expected


@pytest.mark.parametrize("text", ["", "mb", "-1", "5 parsecs", True])
def test_a_wrong_memory_size_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="memory size"):
        parse_memory_size(text)


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("False", False), (True, True)])
def test_booleans_are_read_in_any_case(text: object, expected: bool) -> None:
    assert config_values.BOOLEAN.parse(text) is expected


@pytest.mark.parametrize("spelling", ["at_least_once", "AT_LEAST_ONCE", "at-least-once", " At-Least_Once "])
def test_names_are_read_in_any_case_with_either_dash(spelling: str) -> None:
    assert (
        Configuration.load(None, {"execution.checkpointing.mode": spelling}).get(config.CHECKPOINT_MODE)
        == "AT_LEAST_ONCE"
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("execution.checkpointing.interval", "soon", "a duration"),
        ("execution.checkpointing.interval", "-5s", "a duration"),
        ("execution.checkpointing.interval", "9" * 30 + " d", "a duration"),
        ("execution.checkpointing.interval", "", "a duration"),
        ("execution.checkpointing.interval", "true", "a duration"),
        ("execution.checkpointing.mode", "twice", "one of EXACTLY_ONCE, AT_LEAST_ONCE"),
        ("execution.checkpointing.max-concurrent-checkpoints", "0", "a whole number of at least 1"),
        ("execution.checkpointing.tolerable-failed-checkpoints", "1.5", "a whole number of at least 0"),
        ("parallelism.default", "40000", "at most 32768"),
        ("restart-strategy.exponential-delay.jitter-factor", "2", "at least 0 and at most 1"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "nan", "a number of at least 1"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "inf", "a number of at least 1"),
        ("pipeline.name", " ", "not text"),
    ],
)
def test_an_ill_typed_value_names_key_value_and_what_is_expected(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Configuration.load(None, {key: value})

    assert f'"{key}" is "{value}"' in raised.value.message
    assert expected in raised.value.message
    assert raised.value.hint is not None
    assert "for example" in raised.value.hint


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_the_example_of_every_setting_is_valid_and_its_default_reads_back(option: ConfigOption[Any]) -> None:
    option.parse(option.type.example)

    assert option.default is None or option.parse(option.default) == option.default
    assert option.description.endswith(".")


def test_no_two_settings_share_a_spelling() -> None:
    spellings = [spelling for option in OPTIONS for spelling in (option.key, *option.aliases)]

    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("state.backnd", "state.backend"),
        ("paralelism.default", "parallelism.default"),
        ("interval", "execution.checkpointing.interval"),
        ("sprak.master", "spark.master"),
        ("parallelism", "parallelism.default"),
    ],
)
def test_an_unknown_key_names_its_nearest_neighbour(unknown: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Configuration.load(None, {unknown: "1"})

    assert f'unknown setting "{unknown}" on the command line' in raised.value.message
    assert f'"{nearest}"' in str(raised.value.hint)


@pytest.mark.parametrize("unknown", ["nonsense", "foo.bar", "execution.nonsense"])
def test_nonsense_has_no_neighbour(unknown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Configuration.load(None, {unknown: "1"})

    assert raised.value.hint == "No known key is like it: docs/configuration.md lists them."


def test_the_example_for_a_port_is_one() -> None:
    with pytest.raises(ConfigError) as raised:
        Configuration.load(None, {"rest.port": "abc"})

    assert raised.value.hint == 'Write for example "8081".'


def test_an_unknown_key_in_a_file_says_which_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"checkdam\.yaml, line 3"):
        from_text(tmp_path, "pipeline.name: x\nexecution:\n  checkpointings: 1\n")


def test_the_rocksdb_backend_and_its_memory_are_set_by_flinks_keys() -> None:
    configuration = Configuration.load(
        None, {"state.backend": "RocksDB", "state.backend.rocksdb.memory.fixed-per-slot": "64 mb"}
    )

    assert configuration.get(config.STATE_BACKEND) == "rocksdb"
    assert configuration.get(config.ROCKSDB_MEMORY) == 64 << 20


@pytest.mark.parametrize("name", ["hashmap", "filesystem", "jobmanager"])
def test_flinks_older_names_of_the_hashmap_backend_work(name: str) -> None:
    assert Configuration.load(None, {"state.backend.type": name}).get(config.STATE_BACKEND) == "hashmap"


def test_flinks_defaults_hold_where_nothing_is_set() -> None:
    empty = Configuration.load(None, {})

    assert {option.key: empty.get(option) for option in OPTIONS} == {
        "execution.checkpointing.interval": None,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.timeout": timedelta(minutes=10),
        "execution.checkpointing.min-pause": timedelta(0),
        "execution.checkpointing.max-concurrent-checkpoints": 1,
        "execution.checkpointing.tolerable-failed-checkpoints": 0,
        "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
        "execution.checkpointing.num-retained": 1,
        "execution.checkpointing.dir": None,
        "execution.checkpointing.savepoint-dir": None,
        "state.savepoints.allowed-dirs": None,
        "execution.suspend.grace-period": timedelta(seconds=10),
        "execution.state-recovery.claim-mode": "NO_CLAIM",
        "execution.state-recovery.from-local": False,
        "execution.checkpointing.local-backup.dirs": None,
        "execution.state-recovery.allow-repeated-output": False,
        "execution.state-recovery.path": None,
        "execution.checkpointing.storage": None,
        "execution.state-recovery.ignore-unclaimed-state": False,
        "execution.fail-on-repeated-rejection": False,
        "state.backend.type": "hashmap",
        "execution.checkpointing.incremental": True,
        "state.backend.rocksdb.memory.fixed-per-slot": 256 << 20,
        "state.backend.rocksdb.localdir": None,
        "execution.checkpointing.memory-storage.max-state-size": 5 * 1024 * 1024,
        "parallelism.default": None,
        "pipeline.max-parallelism": 128,
        "pipeline.name": None,
        "spark.master": "local[*]",
        "restart-strategy.type": None,
        "restart-strategy.fixed-delay.attempts": 1,
        "restart-strategy.fixed-delay.delay": timedelta(seconds=1),
        "restart-strategy.exponential-delay.initial-backoff": timedelta(seconds=1),
        "restart-strategy.exponential-delay.max-backoff": timedelta(minutes=1),
        "restart-strategy.exponential-delay.backoff-multiplier": 1.5,
        "restart-strategy.exponential-delay.reset-backoff-threshold": timedelta(hours=1),
        "restart-strategy.exponential-delay.jitter-factor": 0.1,
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": None,
        "restart-strategy.failure-rate.max-failures-per-interval": 1,
        "restart-strategy.failure-rate.failure-rate-interval": timedelta(minutes=1),
        "restart-strategy.failure-rate.delay": timedelta(seconds=1),
        "heartbeat.interval": timedelta(seconds=10),
        "heartbeat.timeout": timedelta(seconds=50),
        "task.cancellation.timeout": timedelta(minutes=3),
        "rest.port": 8081,
        "rest.bind-port": None,
        "rest.address": None,
        "rest.bind-address": "localhost",
        "rest.auth.token": None,
        "rest.auth.token-file": None,
        "rest.async.store-duration": timedelta(minutes=5),
        "rest.server.max-content-length": 16 << 20,
        "web.access-control-allow-origin": None,
        "web.refresh-interval": timedelta(seconds=3),
        "web.checkpoints.history": 200,
        "web.exception-history-size": 16,
        "env.log.dir": None,
        "env.log.level": "INFO",
        "env.log.max-size": 10 << 20,
        "env.log.max": 5,  # Flink keeps 10 files of 100 MB
    }


@pytest.mark.parametrize(
    ("old", "option", "text", "expected"),
    [
        ("state.checkpoints.num-retained", config.NUM_RETAINED_CHECKPOINTS, "3", 3),
        ("state.checkpoints.dir", config.CHECKPOINT_DIR, "/data", "/data"),
        ("state.savepoints.dir", config.SAVEPOINT_DIR, "/data", "/data"),
        ("execution.max-parallelism", config.MAX_PARALLELISM, "64", 64),
        ("restart-strategy", config.RESTART_STRATEGY, "fixeddelay", "fixed-delay"),
    ],
)
def test_an_older_spelling_means_the_same(old: str, option: ConfigOption[Any], text: str, expected: object) -> None:
    assert Configuration.load(None, {old: text}).get(option) == expected


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("state.checkpoints.dir", "execution.checkpointing.dir"),
        ("state.backend.fs.checkpointdir", "state.checkpoints.dir"),
    ],
)
def test_of_two_spellings_in_one_place_the_newer_wins(old: str, new: str, order: int) -> None:
    entries = [(old, "/old"), (new, "/new")]

    assert Configuration.load(None, dict(entries[::order])).get(config.CHECKPOINT_DIR) == "/new"


def test_code_wins_over_the_command_line_which_wins_over_the_file(tmp_path: Path) -> None:
    file = "parallelism.default: 1\nexecution.checkpointing.dir: /file\npipeline.name: file\n"

    settings = from_text(tmp_path, file, {"parallelism.default": "2", "state.checkpoints.dir": "/command-line"})
    settings = settings.with_value(config.DEFAULT_PARALLELISM, 3)

    assert settings.get(config.DEFAULT_PARALLELISM) == 3
    assert settings.get(config.CHECKPOINT_DIR) == "/command-line"  # also under its older spelling
    assert settings.get(config.PIPELINE_NAME) == "file"


def test_with_value_leaves_the_original_alone() -> None:
    before = Configuration()

    after = before.with_value("execution.checkpointing.interval", timedelta(seconds=5))

    assert after.get(config.CHECKPOINT_INTERVAL) == timedelta(seconds=5)
    assert before.get(config.CHECKPOINT_INTERVAL) is None
    assert after.is_set(config.CHECKPOINT_INTERVAL)
    assert not before.is_set(config.CHECKPOINT_INTERVAL)


def test_with_value_checks_what_code_sets() -> None:
    with pytest.raises(ConfigError, match="a duration"):
        Configuration().with_value(config.CHECKPOINT_INTERVAL, timedelta(seconds=-1))


def test_nested_and_flat_keys_mean_the_same(tmp_path: Path) -> None:
    nested = from_text(tmp_path, "execution:\n  checkpointing:\n    interval: 60s\n    num-retained: 3\n")
    flat = from_text(tmp_path, "execution.checkpointing.interval: 60s\nexecution.checkpointing.num-retained: 3\n")
    mixed = from_text(tmp_path, "execution.checkpointing:\n  interval: 60s\n  num-retained: 3\n")

    assert nested == flat == mixed
    assert flat.get(config.CHECKPOINT_INTERVAL) == timedelta(seconds=60)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    assert from_text(tmp_path, text) == Configuration()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline.name: x\nstate: [1,\n", "line 3 is not valid YAML"),
        ("a: b: c\n", "line 1 is not valid YAML"),
        ("pipeline.name: \x00\n", "is not valid YAML"),
        ("- pipeline.name\n", "holds no settings"),
        ("pipeline.name: [a, b]\n", "is not a single value"),
        ("pipeline.name: a\npipeline:\n  name: b\n", r'"pipeline.name" \(.*line 3\) is given twice'),
        ("pipeline: &loop\n  name: *loop\n", "is not a single value"),
        ("? [a]\n: b\n", "is not a single value"),
        ("pipeline.name:\n", 'is ""'),
    ],
)
def test_a_broken_file_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_text(tmp_path, text)


def test_a_missing_or_unreadable_file_is_a_clear_error(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\xfa")

    with pytest.raises(ConfigError, match="No such file"):
        Configuration.load(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="not UTF-8"):
        Configuration.load(binary, {})


def test_spark_keys_are_passed_on_unread(tmp_path: Path) -> None:
    text = "spark:\n  ui.enabled: true\n  sql.shuffle.partitions: 007\n  any.thing: at all\n"

    settings = from_text(tmp_path, text, {"spark.master": "local[2]"}).with_value("spark.any.thing", True)

    assert settings.get(config.SPARK_MASTER) == "local[2]"
    assert settings.spark_settings() == {
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "007",
        "spark.any.thing": "true",
        "spark.master": "local[2]",
    }


def test_an_override_is_split_at_its_first_equals_sign() -> None:
    assert parse_override("spark.x = -Da=b ") == ("spark.x", "-Da=b")


@pytest.mark.parametrize("text", ["", "key", "=value"])
def test_an_override_without_key_or_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a setting"):
        parse_override(text)


def test_a_configuration_travels() -> None:
    settings = Configuration.load(None, {"pipeline.name": "x"}).with_value(config.NUM_RETAINED_CHECKPOINTS, 2)

    assert pickle.loads(pickle.dumps(settings)) == settings
