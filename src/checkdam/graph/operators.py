"""The job as plain data: what each operator is, before anything decides where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkdam.errors import operator_title
from checkdam.graph.functions import CheckpointedFunction, RichFunction, has_life
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.ids import OperatorUid
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.type_info import TypeInfo

OP_STATE = "_op_state"
"""The state name that sum, min, max, reduce and aggregate keep their value under, as in Flink."""


@dataclass(frozen=True)
class KeySelector:
    """How a record's key is found: by columns where they are known, else by the user's function."""

    type: TypeInfo
    function: Any
    columns: tuple[int, ...] | None = None  # the key is these columns of the value
    is_tuple: bool = False


@dataclass(frozen=True)
class SourceKind:
    """Reads records; `spec` says from where (see connectors.sources).

    `is_uid_derived` says that the operator's uid was made from the spec, and not given by the program.
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
class ProcessKind:
    """A ProcessFunction, or a KeyedProcessFunction where the operator has a key."""

    function: Any


@dataclass(frozen=True)
class ConnectKind:
    """Two streams in one function; with `broadcast` the second goes to every subtask and may write those states."""

    function: Any
    broadcast: tuple[MapStateDescriptor[Any, Any], ...] = ()


@dataclass(frozen=True)
class SideOutputKind:
    """What the operator in front emits to one tag; always runs with it."""

    tag: str


@dataclass(frozen=True)
class TimestampsKind:
    """Gives records their event time; the watermark follows from what it has seen."""

    strategy: WatermarkStrategy[Any]


@dataclass(frozen=True)
class SourceFunctionKind:
    """A source that lives in the slots."""

    function: Any


@dataclass(frozen=True)
class SinkFunctionKind:
    """A sink of the user's own."""

    function: Any


@dataclass(frozen=True)
class AggregateFunctionKind:
    """A running AggregateFunction per key; emits the result so far with each record."""

    function: Any
    accumulator: TypeInfo


@dataclass(frozen=True)
class AggregateKind:
    """A running sum, min or max of one field; the other fields stay those of the key's first record."""

    how: str
    field: int | None  # None: the record itself is the number


@dataclass(frozen=True)
class ReduceKind:
    function: Any


@dataclass(frozen=True)
class SinkKind:
    """Where records leave the job; `spec` says how (see connectors.contract)."""

    spec: Any


Kind = (
    SourceKind
    | MapKind
    | FlatMapKind
    | FilterKind
    | ProcessKind
    | ConnectKind
    | SideOutputKind
    | TimestampsKind
    | AggregateKind
    | AggregateFunctionKind
    | ReduceKind
    | SourceFunctionKind
    | SinkFunctionKind
    | SinkKind
)


@dataclass(frozen=True)
class Operator:
    """One step of the job. Its inputs are operators with smaller ids, so the list of operators is in order.

    `second_inputs` and `second_key` are the other side of a connected stream; a broadcast side has no key.
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
    is_rebalanced: bool = False  # its records are dealt out over its subtasks, wherever they come from

    @property
    def title(self) -> str:
        """How messages name it."""
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
        """Whether it is a source whose uid the program did not give."""
        return isinstance(self.kind, SourceKind) and self.kind.is_uid_derived

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps, or may keep, state that a checkpoint must find again by uid."""
        if isinstance(self.kind, AggregateKind | AggregateFunctionKind | ReduceKind):
            return True
        if isinstance(self.kind, SourceFunctionKind):
            return True  # that it has no more records is state: it must not begin again
        if isinstance(self.kind, SinkKind):
            return bool(self.kind.spec.is_transactional)
        if isinstance(self.kind, ConnectKind) and self.kind.broadcast:
            return True
        if isinstance(self.function, CheckpointedFunction):
            return True
        if isinstance(self.kind, ProcessKind | ConnectKind):
            return self.key is not None
        return self.key is not None and has_life(self.function)

    @property
    def function(self) -> Any:
        return getattr(self.kind, "function", None)

    @property
    def needs_slot(self) -> bool:
        """Whether it must live in a slot; the others may run wherever their records are."""
        if self.is_source:
            return False
        if self.is_rebalanced:
            return True  # Spark runs the others where it reads their records
        if isinstance(self.kind, TimestampsKind):
            return False
        plain = isinstance(self.kind, MapKind | FlatMapKind | FilterKind)
        return not plain or self.key is not None or has_life(self.function)

    @property
    def rich_function(self) -> RichFunction | None:
        return self.function if isinstance(self.function, RichFunction) else None

    @property
    def checkpointed_function(self) -> CheckpointedFunction | None:
        return self.function if isinstance(self.function, CheckpointedFunction) else None
