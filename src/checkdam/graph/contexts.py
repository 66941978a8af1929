"""The contexts that the runtime passes to user functions: the contract of every `ctx`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from typing_extensions import TypeForm, TypeVar

from checkdam.errors import JobGraphError
from checkdam.graph.metrics import MetricGroup
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.handles import AggregatingState, ListState, MapState, ReadOnlyMapState, ReducingState, ValueState
from checkdam.types.hints import PickleType, SchemaType

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741  as Flink: input, accumulator, output
A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
Key = TypeVar("Key", covariant=True, default=object)


class KeyedStateAccess(Protocol):
    """Access to keyed state, in `open`, in `initialize_state` or while records are processed.

    Asking again for a name returns the same handle. State that is first asked for late still has its restored content.
    """

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]: ...

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]: ...

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]: ...

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor[I, A, O]) -> AggregatingState[I, O]: ...

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]: ...


class RuntimeContext(KeyedStateAccess, Protocol):
    """A function's access to its slot: passed to `open`, and valid until `close`.

    Keyed state is available on a keyed stream only.
    """

    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def max_parallelism(self) -> int: ...

    @property
    def operator_name(self) -> str: ...

    @property
    def metrics(self) -> MetricGroup:
        """The metrics of the function in this subtask."""

    def get_metrics_group(self) -> MetricGroup:
        """Return `metrics`: PyFlink's name of it."""


class OperatorStateStore(Protocol):
    """Access to operator state, in `initialize_state`. Asking again for a name returns the same state."""

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list per subtask; rescaling splits the elements of all lists evenly."""

    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list per subtask; on every restore each subtask gets the elements of all."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return a mapping whose content must be the same on every subtask."""


class FunctionInitializationContext(Protocol):
    @property
    def is_restored(self) -> bool:
        """Whether the job starts from a checkpoint or savepoint."""

    @property
    def operator_state_store(self) -> OperatorStateStore: ...

    @property
    def keyed_state_store(self) -> KeyedStateAccess: ...


class FunctionSnapshotContext(Protocol):
    @property
    def checkpoint_id(self) -> int: ...

    @property
    def checkpoint_timestamp(self) -> int:
        """The time of the checkpoint's barrier, in milliseconds since 1970."""


@dataclass(frozen=True)
class OutputTag(Generic[T]):
    """The name and type of a side output; `ctx.output(tag, value)` writes to it, `get_side_output(tag)` reads it."""

    name: str
    type: Any = None

    if TYPE_CHECKING:

        @overload
        def __init__(self: OutputTag[Any], name: str) -> None: ...

        @overload
        def __init__(self, name: str, type: TypeForm[T]) -> None: ...

        @overload
        def __init__(self, name: str, type: PickleType[T]) -> None: ...

        @overload
        def __init__(self: OutputTag[Any], name: str, type: SchemaType) -> None: ...

        def __init__(self, name: str, type: object = None) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise JobGraphError(
                f"an output tag must have a name, not {self.name!r}", hint='Write OutputTag("late", str).'
            )


class TimeDomain(Enum):
    EVENT_TIME = "event time"
    PROCESSING_TIME = "processing time"


class TimerService(Protocol):
    """Timers of the current key; times are milliseconds since 1970.

    There is one timer per key, time and domain: registering it again changes nothing. A timer that is already due
    fires in the current epoch.
    """

    @property
    def current_processing_time(self) -> int: ...

    @property
    def current_watermark(self) -> int:
        """The current watermark; the smallest 64-bit number before the first one."""

    def register_event_time_timer(self, timestamp: int) -> None: ...

    def register_processing_time_timer(self, timestamp: int) -> None: ...

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer; do nothing if it is not registered."""

    def delete_processing_time_timer(self, timestamp: int) -> None: ...


class Context(KeyedStateAccess, Protocol):
    """The context of the current record, for `process_element`. Has keyed state on a keyed stream only."""

    @property
    def timestamp(self) -> int | None:
        """The record's event time in milliseconds since 1970; None if it has none."""

    @property
    def timer_service(self) -> TimerService:
        """The clock; timers on keyed streams only."""

    def output(self, tag: OutputTag[T], value: T) -> None:
        """Emit a value to a side output."""


class ProcessContext(Context, Protocol[Key]):
    @property
    def current_key(self) -> Key: ...


class OnTimerContext(ProcessContext[Key], Protocol[Key]):
    """The context of a timer; `timestamp` is the timer's."""

    @property
    def time_domain(self) -> TimeDomain: ...


class ReadOnlyContext(ProcessContext[Key], Protocol[Key]):
    """The context of a record beside a broadcast stream. Has `current_key` and timers only if the stream is keyed."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> ReadOnlyMapState[K, V]: ...


class BroadcastContext(Context, Protocol[Key]):
    """The context of the current record, for `process_broadcast_element`. Has keyed state, but no current key."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]: ...

    @overload
    def apply_to_keyed_state(
        self, descriptor: ValueStateDescriptor[T], function: Callable[[Key, ValueState[T]], object]
    ) -> None: ...

    @overload
    def apply_to_keyed_state(
        self, descriptor: ListStateDescriptor[T], function: Callable[[Key, ListState[T]], object]
    ) -> None: ...

    @overload
    def apply_to_keyed_state(
        self, descriptor: ReducingStateDescriptor[T], function: Callable[[Key, ReducingState[T]], object]
    ) -> None: ...

    @overload
    def apply_to_keyed_state(
        self,
        descriptor: AggregatingStateDescriptor[I, A, O],
        function: Callable[[Key, AggregatingState[I, O]], object],
    ) -> None: ...

    @overload
    def apply_to_keyed_state(
        self, descriptor: MapStateDescriptor[K, V], function: Callable[[Key, MapState[K, V]], object]
    ) -> None: ...

    def apply_to_keyed_state(self, descriptor: Any, function: Callable[[Any, Any], object]) -> None:
        """Call `function(key, state)` for every key of this subtask that has something in that state.

        The order of keys is undefined. The function may change and clear the state of the key, and its other states;
        it cannot set timers. Its result is ignored. Available only if the other stream is keyed.
        """


class SourceContext(Protocol):
    @property
    def subtask_index(self) -> int: ...

    @property
    def parallelism(self) -> int: ...


class SinkContext(Protocol):
    @property
    def timestamp(self) -> int | None: ...

    @property
    def current_processing_time(self) -> int: ...

    @property
    def current_watermark(self) -> int: ...
