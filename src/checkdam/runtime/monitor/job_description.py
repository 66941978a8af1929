"""A job's plan and settings as records."""

from __future__ import annotations

from datetime import timedelta

import xxhash
from msgspec.structs import replace

from checkdam.clock import milliseconds_in
from checkdam.config import DEFAULT_PARALLELISM, SAVEPOINT_ALLOWED_DIRS, SAVEPOINT_DIR, Configuration, Origin
from checkdam.flink.metadata import operator_id
from checkdam.graph.levels import JobPlan, Partitioning
from checkdam.graph.operators import (
    AggregateFunctionKind,
    AggregateKind,
    AsyncMapKind,
    BatchProcessKind,
    ConnectKind,
    FilterKind,
    FlatMapKind,
    IntervalJoinKind,
    Kind,
    MapKind,
    Operator,
    ProcessKind,
    ReduceKind,
    SideOutputKind,
    SinkFunctionKind,
    SinkKind,
    SourceFunctionKind,
    SourceKind,
    TimestampsKind,
    WindowKind,
)
from checkdam.runtime.job import Job
from checkdam.runtime.monitor.job_records import NEVER, InputRecord, JobSettings, OperatorRecord, OptionRecord
from checkdam.runtime.monitor.masking import masked
from checkdam.runtime.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)

_WORDS: dict[type[Kind], str] = {
    SourceKind: "source",
    SourceFunctionKind: "source",
    MapKind: "map",
    FlatMapKind: "flat map",
    FilterKind: "filter",
    AsyncMapKind: "async map",
    ProcessKind: "process",
    BatchProcessKind: "process batch",
    ConnectKind: "connect",
    SideOutputKind: "side output",
    TimestampsKind: "timestamps",
    AggregateFunctionKind: "aggregate",
    ReduceKind: "reduce",
    WindowKind: "window",
    IntervalJoinKind: "interval join",
    SinkFunctionKind: "sink",
    SinkKind: "sink",
}
_SHIP_STRATEGIES = {
    Partitioning.KEYED: "HASH",
    Partitioning.FORWARD: "FORWARD",
    Partitioning.ORIGIN: "RESCALE",
    Partitioning.REBALANCE: "REBALANCE",
    Partitioning.BROADCAST: "BROADCAST",
}


def operator_records(plan: JobPlan) -> tuple[OperatorRecord, ...]:
    """Return every operator of the plan, in its order; inputs include how records reach the operator."""
    levels = {op.id: level.index for level in plan.levels for op in level.operators}
    widths = {op.id: op.parallelism or 1 for level in plan.levels for op in level.operators}
    first = plan.levels[0].parallelism if plan.levels else 1
    shipped = {(edge.source, edge.target): _SHIP_STRATEGIES[edge.partitioning] for edge in plan.edges}
    return tuple(
        OperatorRecord(
            id=op.id,
            vertex_id=vertex_id(op),
            uid=op.uid,
            name=op.name,
            kind=kind_word(op),
            parallelism=widths.get(op.id, first),
            max_parallelism=plan.key_groups_of(op.id),
            level=levels.get(op.id, 0),
            inputs=tuple(InputRecord(i, shipped.get((i, op.id), "FORWARD")) for i in op.all_inputs),
            is_stateful=op.is_stateful,
            is_named=op.is_named,
            is_fixed=op.parallelism is not None or widths.get(op.id, first) != plan.parallelism,
        )
        for op in plan.operators
    )


def vertex_id(operator: Operator) -> str:
    """Return 32 hex digits: the id of the operator's state in checkpoints, else one from its place and name."""
    if operator.uid is not None:
        return vertex_id_of_uid(operator.uid)
    return xxhash.xxh3_128_hexdigest(f"{operator.id}:{operator.name}".encode())


def vertex_id_of_uid(uid: str) -> str:
    return operator_id(uid).hex()


def kind_word(operator: Operator) -> str:
    """Return what the operator does, in a word or two for people."""
    kind = operator.kind
    if isinstance(kind, AggregateKind):
        return kind.how
    word = _WORDS[type(kind)]
    if isinstance(kind, ConnectKind) and kind.broadcast:
        word = "broadcast connect"
    is_keyed = operator.key is not None and not isinstance(
        kind, AggregateFunctionKind | ReduceKind | WindowKind | IntervalJoinKind | SinkKind
    )
    return f"keyed {word}" if is_keyed else word


def job_settings(job: Job, configuration: Configuration | None) -> JobSettings:
    """Return how the job was set up, with secrets masked."""
    known = configuration or Configuration()
    given = {key: each.value for key, each in known.given().items() if each.origin is not Origin.DEFAULT}
    checkpoints = job.checkpoints
    return JobSettings(
        mode=checkpoints.mode.value,
        interval=milliseconds_in(checkpoints.interval) if checkpoints.interval is not None else NEVER,
        timeout=milliseconds_in(checkpoints.timeout),
        min_pause=milliseconds_in(checkpoints.min_pause),
        max_concurrent=checkpoints.max_concurrent,
        tolerable_failures=checkpoints.tolerable_failures,
        retention=checkpoints.retention.value,
        num_retained=checkpoints.num_retained,
        state_backend=type(job.backend).__name__.removesuffix("StateBackend").lower(),
        storage=job.storage,
        savepoint_directory=known.get(SAVEPOINT_DIR),
        restart_strategy=restart_words(job.restart),
        configuration=masked({key: value for key, value in given.items() if value is not None}),
        options=option_records(known),
        savepoint_allowed_dirs=known.get(SAVEPOINT_ALLOWED_DIRS),
    )


def option_records(configuration: Configuration) -> tuple[OptionRecord, ...]:
    """Return every setting with its effective value and origin, by key, with secrets masked."""
    settings = configuration.effective()
    shown = masked({key: setting.value for key, setting in settings.items() if setting.value is not None})
    return tuple(OptionRecord(key, shown.get(key), settings[key].origin.value) for key in sorted(settings))


def rescaled_settings(settings: JobSettings, parallelism: int) -> JobSettings:
    """Return the settings of a job that resumes at another parallelism."""
    changed = OptionRecord(DEFAULT_PARALLELISM.key, str(parallelism), "rescaling")
    return replace(
        settings,
        configuration=settings.configuration | {changed.key: str(parallelism)},
        options=tuple(changed if option.key == changed.key else option for option in settings.options),
    )


def restart_words(strategy: RestartStrategy) -> str:
    """Describe the strategy as Flink's page does."""
    if isinstance(strategy, NoRestart):
        return "No restart: the first failure ends the job."
    if isinstance(strategy, FixedDelayRestart):
        return f"Restart after {_duration(strategy.delay)}, at most {strategy.attempts} times."
    if isinstance(strategy, FailureRateRestart):
        return (
            f"Restart after {_duration(strategy.delay)}, unless more than {strategy.max_failures} failures "
            f"fall within {_duration(strategy.interval)}."
        )
    if isinstance(strategy, ExponentialDelayRestart):
        return (
            f"Restart after {_duration(strategy.initial_backoff)}, each time {strategy.backoff_multiplier:g} times as "
            f"late, up to {_duration(strategy.max_backoff)}."
        )
    return type(strategy).__name__


def _duration(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
