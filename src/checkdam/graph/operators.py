"""The job as plain data: the operators, before the planner places them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from checkdam.errors import operator_title
from checkdam.graph.async_calls import AsyncRetry
from checkdam.graph.contexts import OutputTag
from checkdam.graph.functions import CheckpointedFunction, RichFunction, has_life, has_timers
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.graph.windowing.assigners import WindowAssigner
from checkdam.graph.windowing.evictors import Evictor
from checkdam.graph.windowing.triggers import Trigger
from checkdam.graph.windowing.window_contents import WindowCalls, WindowContents
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.type_info import TypeInfo

OP_STATE = "_op_state"
"""The name of the state in which sum, min, max, reduce and aggregate keep their value, as in Flink."""


@dataclass(frozen=True)
class KeySelector:
    """How the key of a record is computed: from columns where possible, else by the user's function."""

    type: TypeInfo
    function: Any
    columns: tuple[int, ...] | None = None  # the key is these columns of the value
    is_tuple: bool = False


@dataclass(frozen=True)
class SourceKind:
    """Reads records; `spec` says from where (see connectors.sources).

    `is_uid_derived` says that the operator's uid was derived from the spec, not given by the program.
    """

    spec: Any
    is_uid_derived: bool = False


@dataclass(frozen=True)
class MapKind:
    function: Any


@dataclass(frozen=True)
class FlatMapKind:
    function: Any


@dataclass(frozen=True)
class FilterKind:
    function: Any


@dataclass(frozen=True)
class AsyncMapKind:
    """Calls a coroutine function for each record, many at a time; for each batch of records with `batch_size`."""

    function: Any
    capacity: int = 100  # the most calls in flight in a subtask
    timeout: timedelta | None = None  # of a call with all its retries
    is_ordered: bool = True
    retry: AsyncRetry | None = None
    on_timeout: Any = None
    batch_size: int | None = None
    max_delay: timedelta | None = None  # how long a batch waits until it is full


@dataclass(frozen=True)
class ProcessKind:
    """A ProcessFunction, or a KeyedProcessFunction where the operator has a key."""

    function: Any


@dataclass(frozen=True)
class BatchProcessKind:
    """A KeyedBatchFunction."""

    function: Any


@dataclass(frozen=True)
class ConnectKind:
    """Two streams in one function; with `broadcast` the second goes to every subtask and may write those states."""

    function: Any
    broadcast: tuple[MapStateDescriptor[Any, Any], ...] = ()


@dataclass(frozen=True)
class SideOutputKind:
    """The records that the upstream operator emits to one tag; always runs in the same chain."""

    tag: str


@dataclass(frozen=True)
class TimestampsKind:
    """Assigns event times to records; the watermark follows from the timestamps seen."""

    strategy: WatermarkStrategy[Any]


@dataclass(frozen=True)
class SourceFunctionKind:
    """A source that runs in the slots."""

    function: Any


@dataclass(frozen=True)
class SinkFunctionKind:
    """A user-defined sink."""

    function: Any


@dataclass(frozen=True)
class AggregateFunctionKind:
    """A running AggregateFunction per key; emits the current result with each record."""

    function: Any
    accumulator: TypeInfo


@dataclass(frozen=True)
class AggregateKind:
    """A running sum, min or max of one field; the other fields keep the values of the key's first record."""

    how: str
    field: int | None  # None: the record itself is the number


@dataclass(frozen=True)
class ReduceKind:
    function: Any


@dataclass(frozen=True)
class WindowKind:
    """Windows of a keyed stream, or of two: what a window keeps, when it fires and what it emits.

    `allowed_lateness` is in milliseconds; `late_tag` is the side output of late records.
    """

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    contents: WindowContents
    function: WindowCalls
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness: int = 0
    late_tag: OutputTag[Any] | None = None


@dataclass(frozen=True)
class IntervalJoinKind:
    """Two keyed streams joined by their timestamps: the right ones from `lower` to `upper` milliseconds after the left.

    `types` are those of the records, `late_tags` the side outputs of late ones, each of the first and second stream.
    """

    function: Any
    types: tuple[TypeInfo, TypeInfo]
    lower: int
    upper: int
    late_tags: tuple[OutputTag[Any] | None, OutputTag[Any] | None] = (None, None)


@dataclass(frozen=True)
class SinkKind:
    """A sink; `spec` says how records leave the job (see connectors.contract)."""

    spec: Any


Kind = (
    SourceKind
    | MapKind
    | FlatMapKind
    | FilterKind
    | AsyncMapKind
    | ProcessKind
    | BatchProcessKind
    | ConnectKind
    | SideOutputKind
    | TimestampsKind
    | AggregateKind
    | AggregateFunctionKind
    | ReduceKind
    | SourceFunctionKind
    | SinkFunctionKind
    | WindowKind
    | IntervalJoinKind
    | SinkKind
)


@dataclass(frozen=True)
class Operator:
    """One step of the job. Its inputs are operators with smaller ids, so operators are in topological order.

    `second_inputs` and `second_key` are the second input of a connected stream; a broadcast input has no key.
    """

    id: int
    name: str
    kind: Kind
    inputs: tuple[int, ...]
    output_type: TypeInfo
    uid: OperatorUid | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    key: KeySelector | None = None
    second_inputs: tuple[int, ...] = ()
    second_key: KeySelector | None = None
    is_rebalanced: bool = False  # its records are spread evenly over its subtasks, wherever they come from
    is_named: bool = False  # the user has chosen the name

    @property
    def title(self) -> str:
        """The name of the operator in messages."""
        return operator_title(self.name, self.uid)

    @property
    def all_inputs(self) -> tuple[int, ...]:
        return self.inputs + self.second_inputs

    @property
    def is_source(self) -> bool:
        """Whether Spark reads it."""
        return isinstance(self.kind, SourceKind)

    @property
    def has_derived_uid(self) -> bool:
        """Whether it is a source without a uid from the program."""
        return isinstance(self.kind, SourceKind) and self.kind.is_uid_derived

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps, or may keep, state that a restore finds by uid."""
        if isinstance(self.kind, AggregateKind | AggregateFunctionKind | ReduceKind | WindowKind | IntervalJoinKind):
            return True
        if isinstance(self.kind, SourceFunctionKind):
            return True  # having ended is state: it must not start again
        if isinstance(self.kind, SinkKind):
            return bool(self.kind.spec.is_transactional)
        if isinstance(self.kind, ConnectKind) and self.kind.broadcast:
            return True
        if isinstance(self.function, CheckpointedFunction):
            return True
        if isinstance(self.kind, ProcessKind | BatchProcessKind | ConnectKind):
            return self.key is not None
        return self.key is not None and has_life(self.function)

    @property
    def function(self) -> Any:
        return getattr(self.kind, "function", None)

    @property
    def needs_slot(self) -> bool:
        """Whether it must run in a slot; other operators may run where their records are."""
        if self.is_source:
            return False
        if self.is_rebalanced:
            return True  # Spark runs the others where it reads their records
        if isinstance(self.kind, TimestampsKind):
            return False
        plain = isinstance(self.kind, MapKind | FlatMapKind | FilterKind)
        return not plain or self.key is not None or has_life(self.function)

    @property
    def needs_timestamps(self) -> bool:
        """Whether every record must have an event time."""
        if isinstance(self.kind, WindowKind):
            return self.kind.assigner.is_event_time()
        return isinstance(self.kind, IntervalJoinKind)

    @property
    def has_timers(self) -> bool:
        """Whether it may emit records when time passes, without new input."""
        return isinstance(self.kind, WindowKind | IntervalJoinKind) or has_timers(self.function)

    @property
    def rich_function(self) -> RichFunction | None:
        return self.function if isinstance(self.function, RichFunction) else None

    @property
    def checkpointed_function(self) -> CheckpointedFunction | None:
        function = self.function.window_function if isinstance(self.function, WindowCalls) else self.function
        return function if isinstance(function, CheckpointedFunction) else None
