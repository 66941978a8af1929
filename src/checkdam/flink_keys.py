"""Flink's settings that have no effect here, each with the reason, and those that are refused.

Together with the options of `config.py` these are all known keys. A family ends with a dot and stands for every key
below it: settings of Flink's own processes are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class WithoutEffect:
    """Keys, or families of keys, that are accepted for one reason and have no effect.

    `holds` is the value that matches the actual behaviour: "false" for features that do not exist here.
    """

    title: str
    reason: str
    keys: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    holds: str = "false"


@dataclass(frozen=True)
class RefusedKey:
    """Keys that accept only the `allowed` values, and the reason."""

    keys: tuple[str, ...]
    allowed: tuple[str, ...]
    reason: str
    hint: str


_CHECKPOINTING = "execution.checkpointing."
_ROCKSDB = "state.backend.rocksdb."

WITHOUT_EFFECT: tuple[WithoutEffect, ...] = (
    WithoutEffect(
        "Unaligned checkpoints",
        "a barrier falls between two epochs, when no record is in flight: there is nothing to align or to store",
        (
            _CHECKPOINTING + "unaligned.enabled",
            _CHECKPOINTING + "unaligned",
            _CHECKPOINTING + "unaligned.forced",
            _CHECKPOINTING + "unaligned.max-subtasks-per-channel-state-file",
            _CHECKPOINTING + "unaligned.interruptible-timers.enabled",
            _CHECKPOINTING + "unaligned.recover-output-on-downstream.enabled",
            _CHECKPOINTING + "unaligned.during-recovery.enabled",
            _CHECKPOINTING + "during-recovery.enabled",
            _CHECKPOINTING + "aligned-checkpoint-timeout",
            _CHECKPOINTING + "alignment-timeout",
            _CHECKPOINTING + "recover-without-channel-state.checkpoint-id",
            "execution.state-recovery.without-channel-state.checkpoint-id",
        ),
    ),
    WithoutEffect(
        "Network buffers",
        "records move through Spark's exchanges, an epoch at a time, and not through Flink's network buffers",
        (
            "execution.buffer-timeout",
            "execution.buffer-timeout.enabled",
            "execution.buffer-timeout.interval",
        ),
        ("taskmanager.network.",),
    ),
    WithoutEffect(
        "Files of checkpoints",
        "a slot writes one compressed file for each operator, and small operator state lies in _metadata in any case",
        (
            _CHECKPOINTING + "data-inline-threshold",
            "state.storage.fs.memory-threshold",
            "state.backend.fs.memory-threshold",
            _CHECKPOINTING + "write-buffer-size",
            "state.storage.fs.write-buffer-size",
            "state.backend.fs.write-buffer-size",
            _CHECKPOINTING + "snapshot-compression",
            _CHECKPOINTING + "snapshot-compression.enabled",
            _CHECKPOINTING + "cleaner.parallel-mode",
            "state.checkpoint.cleaner.parallel-mode",
            "state.checkpoints.cleaner.parallel-mode",
        ),
        (_CHECKPOINTING + "file-merging.", "state.checkpoints.file-merging."),
    ),
    WithoutEffect(
        "Always on",
        "checkpoints are always written asynchronously, and go on when some tasks have finished; operators are always"
        " chained",
        (
            "state.backend.async",
            _CHECKPOINTING + "checkpoints-after-tasks-finish",
            _CHECKPOINTING + "checkpoints-after-tasks-finish.enabled",
            "pipeline.operator-chaining",
            "pipeline.operator-chaining.enabled",
        ),
        holds="true",
    ),
    WithoutEffect(
        "Backlog",
        "sources do not tell whether they work off a backlog: execution.checkpointing.interval holds throughout",
        (_CHECKPOINTING + "interval-during-backlog", _CHECKPOINTING + "checkpointing-during-backlog"),
    ),
    WithoutEffect(
        "Changelog",
        "there is no changelog beside the checkpoints: an incremental checkpoint holds what changed",
        ("state.backend.changelog.enabled", "state.changelog.enabled"),
        ("state.backend.changelog.", "state.changelog.", "dstl."),
    ),
    WithoutEffect(
        "Tuning of RocksDB",
        "RocksDB is tuned from its one budget, state.backend.rocksdb.memory.fixed-per-slot",
        (
            *(
                _ROCKSDB + name
                for name in (
                    "memory.managed",
                    "memory.fixed-per-tm",
                    "memory.high-prio-pool-ratio",
                    "memory.partitioned-index-filters",
                    "memory.write-buffer-ratio",
                    "block.blocksize",
                    "block.cache-size",
                    "block.metadata-blocksize",
                    "bloom-filter.bits-per-key",
                    "bloom-filter.block-based-mode",
                    "use-bloom-filter",
                    "checkpoint.transfer.thread.num",
                    "checkpoint.restoring.thread.num",
                    "compaction.level.max-size-level-base",
                    "compaction.level.target-file-size-base",
                    "compaction.level.use-dynamic-size",
                    "compaction.style",
                    "compression.per.level",
                    "files.open",
                    "incremental-restore-async-compact-after-rescale",
                    "options-factory",
                    "predefined-options",
                    "rescaling.use-delete-files-in-range",
                    "restore-overlap-fraction-threshold",
                    "thread.num",
                    "use-ingest-db-restore-mode",
                    "write-batch-size",
                    "writebuffer.count",
                    "writebuffer.number-to-merge",
                    "writebuffer.size",
                )
            ),
            "state.backend.rocksdb.options.factory",
        ),
        (_ROCKSDB + "log.", _ROCKSDB + "manual-compaction."),
    ),
    WithoutEffect(
        "Timers",
        "timers lie in the state backend of the job, whichever it is",
        (
            _ROCKSDB + "timer-service.factory",
            _ROCKSDB + "timer-service.cache-size",
            "state.backend.timer-service.factory",
        ),
    ),
    WithoutEffect(
        "Time to live",
        "time to live belongs to a state: StateTtlConfig of its descriptor says how long, and how it is cleaned up",
        ("table.exec.state.ttl", _ROCKSDB + "ttl.compaction.filter.enabled"),
        (_ROCKSDB + "compaction.filter.",),
    ),
    WithoutEffect(
        "Metrics of state",
        "docs/operating.md lists the metrics of state",
        (),
        (
            _ROCKSDB + "metrics.",
            "state.backend.latency-track.",
            "state.latency-track.",
            "state.backend.size-track.",
            "state.size-track.",
        ),
    ),
    WithoutEffect(
        "ForSt",
        "there is no ForSt backend: state is in hashmap or rocksdb",
        (),
        ("state.backend.forst.",),
    ),
    WithoutEffect(
        "Restarts",
        "a failover restarts the whole job, with the strategy of restart-strategy.type",
        (
            "jobmanager.execution.failover-strategy",
            "execution-retries.default",
            "execution-retries.delay",
            "cleanup-strategy",
            "heartbeat.rpc-failure-threshold",
        ),
        ("cleanup-strategy.",),
    ),
    WithoutEffect(
        "Asynchronous state",
        "access to state is synchronous",
        (),
        ("execution.async-state.",),
    ),
    WithoutEffect(
        "How a job is built and submitted",
        "a job is built by its Python program, which `checkdam run` runs in its own process",
        (
            "execution.attached",
            "execution.target",
            "execution.allow-client-job-configurations",
            "execution.batch-shuffle-mode",
            "execution.job-listeners",
            "execution.job-status-changed-listeners",
            "execution.shutdown-on-application-finish",
            "execution.shutdown-on-attached-exit",
            "execution.submit-failed-job-on-application-error",
            "execution.program-config.enabled",
            "execution.program-config.wildcards",
            "pipeline.auto-generate-uids",
            "pipeline.auto-type-registration",
            "pipeline.auto-watermark-interval",
            "pipeline.cached-files",
            "pipeline.classpaths",
            "pipeline.closure-cleaner-level",
            "pipeline.default-kryo-serializers",
            "pipeline.force-avro",
            "pipeline.force-kryo",
            "pipeline.force-kryo-avro",
            "pipeline.generic-types",
            "pipeline.global-job-parameters",
            "pipeline.jars",
            "pipeline.jobvertex-parallelism-overrides",
            "pipeline.object-reuse",
            "pipeline.registered-kryo-types",
            "pipeline.registered-pojo-types",
            "pipeline.serialization-config",
            "pipeline.serialization-info",
            "pipeline.time-characteristic",
            "pipeline.vertex-description-mode",
            "pipeline.vertex-name-include-index-prefix",
        ),
        (
            "execution.batch.",
            "execution.batch-shuffle-mode.",
            "execution.sorted-inputs.",
            "pipeline.global-job-parameters.",
            "pipeline.operator-chaining.",
            "pipeline.watermark-alignment.",
            "classloader.",
            "client.",
            "compiler.",
            "optimizer.",
            "python.",
            "sql-client.",
            "sql-gateway.",
            "table.",
            "user.artifacts.",
        ),
    ),
    WithoutEffect(
        "Flink's processes",
        "Spark runs the job: Flink's own processes, and what they run on, do not exist here",
        (
            "external-resources",
            "high-availability",
            "scheduler-mode",
            "fs.default-scheme",
            "fs.overwrite-files",
            "task.cancellation-interval",
            "task.cancellation.interval",
            "task.cancellation.timers.timeout",
        ),
        (
            "akka.",
            "blob.",
            "cluster.",
            "containerized.",
            "env.",
            "events.",
            "external-resource.",
            "flink.hadoop.",
            "fs.",
            "gs.",
            "hadoop.",
            "high-availability.",
            "historyserver.",
            "io.",
            "jmx.",
            "job.autoscaler.",
            "jobmanager.",
            "jobstore.",
            "job-event.",
            "job-result-store.",
            "application-result-store.",
            "kubernetes.",
            "mesos.",
            "metrics.",
            "minicluster.",
            "pekko.",
            "plugin.",
            "presto.",
            "process.",
            "query.",
            "queryable-state.",
            "recovery.",
            "resourcemanager.",
            "security.",
            "slot.",
            "slotmanager.",
            "s3.",
            "s3a.",
            "task.checkpoint.",
            "taskmanager.",
            "traces.",
            "yarn.",
            "zookeeper.",
        ),
    ),
    WithoutEffect(
        "REST server and page",
        "Checkdam has its own REST server, with the settings in docs/rest.md",
        (
            "rest.await-leader-timeout",
            "rest.connection-timeout",
            "rest.idleness-timeout",
            "rest.path",
            "rest.url-prefix",
            "web.access-control-allow-methods",
            "web.address",
            "web.adaptive-scheduler.rescale-history.size",
            "web.cancel.enable",
            "web.enable-flame-graph",
            "web.history",
            "web.log.path",
            "web.port",
            "web.rescale.enable",
            "web.ssl.enabled",
            "web.submit.enable",
            "web.timeout",
            "web.tmpdir",
            "web.upload.dir",
        ),
        (
            "rest.cache.",
            "rest.client.",
            "rest.flamegraph.",
            "rest.profiling.",
            "rest.retry.",
            "rest.server.",
            "web.backpressure.",
        ),
    ),
)

REFUSED: tuple[RefusedKey, ...] = (
    RefusedKey(
        (_CHECKPOINTING + "create-subdir", "state.checkpoints.create-subdir"),
        ("true",),
        "each job would delete the checkpoints of the other jobs in the same directory",
        "Leave it out: each job has a directory of its own below the checkpoint directory.",
    ),
    RefusedKey(
        ("execution.runtime-mode",),
        ("streaming", "automatic"),
        "there is no batch mode: a job over bounded input runs as a stream that ends",
        "Leave it out, or set STREAMING.",
    ),
)

_REASONS = {key: each.reason for each in WITHOUT_EFFECT for key in each.keys}
_HOLDING = {key: each.holds for each in WITHOUT_EFFECT for key in each.keys}
_FAMILIES = {family: each.reason for each in WITHOUT_EFFECT for family in each.families}
_REFUSED = {key: each for each in REFUSED for key in each.keys}


def known_keys() -> Iterator[str]:
    """Yield every key of this module, without those that only a family covers."""
    yield from _REASONS
    yield from _REFUSED


def reason_without_effect(key: str) -> str | None:
    """Return why the key has no effect here; None if it is not such a key."""
    if key in _REASONS:
        return _REASONS[key]
    if key in _REFUSED:
        return "this is always the behaviour"
    parts = key.split(".")
    for length in range(len(parts) - 1, 0, -1):  # the narrowest family first
        reason = _FAMILIES.get(".".join(parts[:length]) + ".")
        if reason is not None:
            return reason
    return None


def holds_anyway(key: str, value: str) -> bool:
    """Return whether the value matches the actual behaviour, so that no warning is needed."""
    return key in _REFUSED or value.strip().lower() == _HOLDING.get(key, "false")


def refusal(key: str, value: str) -> RefusedKey | None:
    """Return why this value is refused; None if it is accepted."""
    refused = _REFUSED.get(key)
    return refused if refused is not None and value.strip().lower() not in refused.allowed else None
