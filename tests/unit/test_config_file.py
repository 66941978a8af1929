"""Settings files of Flink load as they are, and every key of the notes and of Flink's groups is known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from checkdam import config
from checkdam.config import Configuration, Origin
from checkdam.errors import ConfigError

FLINK_2 = """
# These parameters are required for Java 17 support.
env:
  java:
    opts:
      all: --add-exports=java.base/sun.net.util=ALL-UNNAMED --add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED
jobmanager:
  bind-host: localhost
  rpc:
    address: localhost
    port: 6123
  memory:
    process:
      size: 1600m
  execution:
    failover-strategy: region
taskmanager:
  bind-host: localhost
  numberOfTaskSlots: 1
  memory:
    process:
      size: 1728m
parallelism:
  default: 1
execution:
  checkpointing:
    interval: 3min
    externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
    max-concurrent-checkpoints: 1
    min-pause: 0
    timeout: 10min
    unaligned:
      enabled: true
    incremental: false
state:
  backend:
    type: rocksdb
  checkpoints:
    dir: hdfs://namenode-host:9000/flink-checkpoints
rest:
  address: localhost
  bind-address: localhost
web:
  submit:
    enable: false
io:
  tmp:
    dirs: [/data1, /data2]
metrics.reporters: [prom]
classloader.resolve.order: child-first
"""

FLINK_1 = """
jobmanager.rpc.address: localhost
jobmanager.memory.process.size: 1600m
taskmanager.numberOfTaskSlots: 4
parallelism.default: 2
env.java.opts: -Dkey: {unbalanced
  this line has no key
rest.port 8081
# config checkpoint
state.backend: filesystem
state.backend.incremental: true  # only with rocksdb
state.checkpoints.dir: file:///root/flink/cppath
state.savepoints.dir: file:///root/flink/sppath
execution.checkpointing.interval: 30000
execution.checkpointing.interval: 60000  # every 60 s
execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
state.checkpoints.num-retained: 100
state.backend.local-recovery: true
"""

# Every key of Flink's checkpoint, savepoint, backend, restart, TTL and local-recovery groups that the notes, or Flink's
# own lists of 1.17 and 2.x, name.
GROUPS = """
execution.checkpointing.mode: EXACTLY_ONCE
execution.checkpointing.timeout: 1 min
execution.checkpointing.tolerable-failed-checkpoints: 2
execution.checkpointing.unaligned.forced: true
execution.checkpointing.unaligned.max-subtasks-per-channel-state-file: 5
execution.checkpointing.recover-without-channel-state.checkpoint-id: -1
execution.checkpointing.aligned-checkpoint-timeout: 0 ms
execution.checkpointing.checkpoints-after-tasks-finish: true
execution.checkpointing.interval-during-backlog: 1 h
execution.checkpointing.local-backup.enabled: true
execution.checkpointing.local-backup.dirs: /tmp/local
execution.checkpointing.storage: filesystem
execution.checkpointing.data-inline-threshold: 20 kb
execution.checkpointing.write-buffer-size: 4096
execution.checkpointing.create-subdir: true
execution.checkpointing.cleaner.parallel-mode: true
execution.checkpointing.file-merging.enabled: true
execution.checkpointing.snapshot-compression: true
execution.state-recovery.from-local: true
execution.state-recovery.path: file:///sp/savepoint-1
execution.state-recovery.ignore-unclaimed-state: true
execution.state-recovery.claim-mode: NO_CLAIM
state.checkpoint-storage: filesystem
state.storage.fs.memory-threshold: 20kb
state.backend.async: true
state.backend.latency-track.keyed-state-enabled: true
state.backend.changelog.enabled: true
state.backend.rocksdb.localdir: /tmp/rocks
state.backend.rocksdb.memory.managed: true
state.backend.rocksdb.memory.write-buffer-ratio: 0.5
state.backend.rocksdb.predefined-options: FLASH_SSD_OPTIMIZED
state.backend.rocksdb.thread.num: 4
state.backend.rocksdb.writebuffer.size: 64mb
state.backend.rocksdb.block.cache-size: 8mb
state.backend.rocksdb.compaction.style: LEVEL
state.backend.rocksdb.timer-service.factory: HEAP
state.backend.rocksdb.checkpoint.transfer.thread.num: 4
state.backend.rocksdb.metrics.estimate-num-keys: true
state.backend.rocksdb.ttl.compaction.filter.enabled: true
state.backend.rocksdb.use-bloom-filter: true
taskmanager.state.local.root-dirs: /tmp/local
table.exec.state.ttl: 1 h
restart-strategy.type: exponential-delay
restart-strategy.exponential-delay.initial-backoff: 1 s
restart-strategy.exponential-delay.max-backoff: 1 min
restart-strategy.exponential-delay.backoff-multiplier: 1.5
restart-strategy.exponential-delay.reset-backoff-threshold: 1 h
restart-strategy.exponential-delay.jitter-factor: 0.1
restart-strategy.exponential-delay.attempts-before-reset-backoff: 3
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 10 s
restart-strategy.failure-rate.max-failures-per-interval: 3
restart-strategy.failure-rate.failure-rate-interval: 5 min
restart-strategy.failure-rate.delay: 10 s
"""


def loaded(tmp_path: Path, name: str, text: str) -> Configuration:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return Configuration.load(tmp_path / name)


def without_effect(configuration: Configuration) -> set[str]:
    return {key for keys in configuration.without_effect().values() for key in keys}


def test_a_config_yaml_of_flink_2_loads_as_it_is(tmp_path: Path) -> None:
    held = loaded(tmp_path, "config.yaml", FLINK_2)

    assert held.get(config.CHECKPOINT_INTERVAL) == timedelta(minutes=3)
    assert held.get(config.CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION"
    assert held.get(config.STATE_BACKEND) == "rocksdb"
    assert held.get(config.DEFAULT_PARALLELISM) == 1
    assert held.get(config.CHECKPOINT_DIR) == "hdfs://namenode-host:9000/flink-checkpoints"
    assert held.setting(config.INCREMENTAL_CHECKPOINTS).value is False
    told = without_effect(held)
    assert {"execution.checkpointing.unaligned.enabled", "jobmanager.rpc.address", "io.tmp.dirs"} <= told
    assert not told & {"web.submit.enable", "parallelism.default", "state.backend.type"}
    assert len(held.without_effect()) <= 4  # one sentence for each reason, not for each key


def test_a_flink_conf_yaml_of_flink_1_loads_as_it_is(tmp_path: Path) -> None:
    held = loaded(tmp_path, "flink-conf.yaml", FLINK_1)

    assert held.get(config.CHECKPOINT_INTERVAL) == timedelta(seconds=60)
    assert held.get(config.STATE_BACKEND) == "hashmap"
    assert held.get(config.NUM_RETAINED_CHECKPOINTS) == 100
    assert held.get(config.SAVEPOINT_DIR) == "file:///root/flink/sppath"
    assert held.get(config.DEFAULT_PARALLELISM) == 2
    assert held.setting(config.INCREMENTAL_CHECKPOINTS).value is True
    assert not held.is_set(config.REST_PORT)  # Flink passes over a line without ": ", too
    assert held.get(config.RESTORE_FROM_LOCAL) is True
    assert {"env.java.opts", "taskmanager.numberOfTaskSlots"} <= without_effect(held)


def test_every_key_of_the_groups_is_known_and_what_has_no_effect_says_why(tmp_path: Path) -> None:
    held = loaded(tmp_path, "checkdam.yaml", GROUPS)

    keys = [line.partition(":")[0] for line in GROUPS.split()]
    assert keys
    reasons = {key: reason for reason, named in held.without_effect().items() for key in named}
    assert "no record is in flight" in reasons["execution.checkpointing.unaligned.forced"]
    assert "StateTtlConfig" in reasons["table.exec.state.ttl"]
    assert "one budget" in reasons["state.backend.rocksdb.writebuffer.size"]
    assert not any(key.startswith("restart-strategy") for key in reasons)


def test_a_directory_of_flink_is_read_as_flink_does(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no flink-conf.yaml and no config.yaml"):
        Configuration.load(tmp_path)
    (tmp_path / "config.yaml").write_text("parallelism:\n  default: 3\n")
    assert Configuration.load(tmp_path).get(config.DEFAULT_PARALLELISM) == 3
    (tmp_path / "flink-conf.yaml").write_text("parallelism.default: 4\n")
    assert Configuration.load(tmp_path).setting(config.DEFAULT_PARALLELISM).value == 4
    assert Configuration.load(tmp_path).setting(config.DEFAULT_PARALLELISM).origin is Origin.FILE


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("execution.checkpointing.create-subdir", "false", "each job would delete the checkpoints of the other jobs"),
        ("state.checkpoints.create-subdir", "false", "each job would delete the checkpoints of the other jobs"),
        ("execution.runtime-mode", "BATCH", "there is no batch mode"),
        ("state.backend.type", "forst", "one of hashmap, rocksdb"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Configuration.load(None, {key: value})
    Configuration.load(None, {"execution.runtime-mode": "STREAMING"})


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("execution.checkpointing.unaligned.enable", "execution.checkpointing.unaligned.enabled"),
        ("state.backend.incrementall", "state.backend.incremental"),
        ("state.backend.rocksdb.thread.nun", "state.backend.rocksdb.thread.num"),
        ("restart-strategy.fixed-delay.attemps", "restart-strategy.fixed-delay.attempts"),
    ],
)
def test_a_typo_among_flinks_keys_names_the_nearest(typo: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as raised:
        Configuration.load(None, {typo: "1"})

    assert f'"{nearest}"' in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 min", timedelta(minutes=10)),
        ("10min", timedelta(minutes=10)),
        ("1 h", timedelta(hours=1)),
        ("PT10M", timedelta(minutes=10)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P1DT0.5S", timedelta(days=1, milliseconds=500)),
        ("1500 µs", timedelta(microseconds=1500)),
        ("60000", timedelta(minutes=1)),
    ],
)
def test_durations_in_flinks_spellings(text: str, expected: timedelta) -> None:
    held = Configuration.load(None, {"execution.checkpointing.timeout": text})

    assert held.get(config.CHECKPOINT_TIMEOUT) == expected


@pytest.mark.parametrize("text", ["P", "PT", "P1", "PTM", "1 fortnight"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a duration"):
        Configuration.load(None, {"execution.checkpointing.timeout": text})


@pytest.mark.parametrize(
    ("key", "holds", "asks_in_vain"),
    [
        ("execution.checkpointing.unaligned.enabled", "False", "true"),
        ("state.backend.async", "true", "false"),
        ("execution.checkpointing.checkpoints-after-tasks-finish.enabled", "true", "false"),
        ("pipeline.operator-chaining.enabled", "true", "false"),
    ],
)
def test_only_a_value_that_does_not_hold_is_told(key: str, holds: str, asks_in_vain: str) -> None:
    assert without_effect(Configuration.load(None, {key: holds})) == set()
    assert without_effect(Configuration.load(None, {key: asks_in_vain})) == {key}
    assert without_effect(Configuration.load(None, {"execution.runtime-mode": "STREAMING"})) == set()


@pytest.mark.parametrize(
    "key",
    [
        "cleanup-strategy",
        "execution.async-state.in-flight-records-limit",
        "execution.batch-shuffle-mode",
        "external-resources",
        "flink.hadoop.fs.defaultFS",
        "pipeline.serialization-config",
        "pipeline.time-characteristic",
        "plugin.classloader.parent-first-patterns.additional",
        "s3a.endpoint",
        "scheduler-mode",
        "state.backend.rocksdb.checkpointdir",
    ],
)
def test_flinks_rarer_keys_are_known(key: str) -> None:
    Configuration.load(None, {key: "x"})


@pytest.mark.parametrize("file", ["config.yaml", "flink-conf.yaml"])
def test_flinks_default_of_the_max_parallelism_leaves_it_unset(tmp_path: Path, file: str) -> None:
    held = loaded(tmp_path, file, "pipeline.max-parallelism: -1\n")

    assert held.get(config.MAX_PARALLELISM) == config.MAX_PARALLELISM.default
    assert not held.is_set(config.MAX_PARALLELISM)


@pytest.mark.parametrize("file", ["config.yaml", "flink-conf.yaml"])
def test_flinks_default_of_the_parallelism_leaves_it_unset(tmp_path: Path, file: str) -> None:
    held = loaded(tmp_path, file, "parallelism.default: -1\n")

    assert held.get(config.DEFAULT_PARALLELISM) is None
    with pytest.raises(ConfigError, match="at least 1"):
        loaded(tmp_path, file, "parallelism.default: -2\n")


def test_unsetting_the_parallelism_on_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("parallelism.default: 4\n")

    held = Configuration.load(tmp_path / "config.yaml", {"parallelism.default": "-1"})

    assert held.get(config.DEFAULT_PARALLELISM) is None


def test_an_ill_typed_value_is_told_with_the_key_as_it_is_spelled_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'"state.backend.incremental" is "yes" \(.*/config.yaml, line 2\), which is not'
    ):
        loaded(tmp_path, "config.yaml", "parallelism.default: 2\nstate.backend.incremental: yes\n")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    held = loaded(tmp_path, "flink-conf.yaml", "\ufeffparallelism.default: 3\n")

    assert held.get(config.DEFAULT_PARALLELISM) == 3
