"""Connected streams: two streams read by one function, which may share state between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from typing_extensions import TypeForm

from checkdam.api.declarations import check_kind, declared, produced_type
from checkdam.errors import JobGraphError
from checkdam.graph.function_shapes import BroadcastProcesses, KeyedBroadcastProcesses, KeyedCoProcesses
from checkdam.graph.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from checkdam.graph.operators import ConnectKind
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.types.hints import PickleType, SchemaType

if TYPE_CHECKING:
    from checkdam.api.streams import DataStream, KeyedStream, Stream

K = TypeVar("K", covariant=True)
T = TypeVar("T", covariant=True)
T2 = TypeVar("T2", covariant=True)
B = TypeVar("B", covariant=True)
O = TypeVar("O")  # noqa: E741  Flink's name for the output


class BroadcastStream(Generic[B]):
    """Records that every subtask sees, and the states they may write. Used only as an argument of `connect`."""

    def __init__(self, stream: Stream[B], descriptors: tuple[MapStateDescriptor[Any, Any], ...]) -> None:
        self._stream = stream
        self._descriptors = descriptors
        if not descriptors:
            raise JobGraphError(
                "broadcast() declares no state",
                hint='Write broadcast(MapStateDescriptor("rules", str, Rule)), one for each state it may write.',
            )
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise JobGraphError(
                    f"broadcast() takes MapStateDescriptors, not {type(descriptor).__name__}",
                    hint="Broadcast state is a map: write MapStateDescriptor(name, key type, value type).",
                )
            if descriptor.ttl is not None:
                raise JobGraphError(
                    f'broadcast state "{descriptor.name}" has a time to live, which only keyed state can have',
                    hint="Leave ttl out, and remove entries with a broadcast record of your own.",
                )
        names = [descriptor.name for descriptor in descriptors]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise JobGraphError(
                f'broadcast() declares state "{twice}" twice', hint="Give each broadcast state a name of its own."
            )


class BroadcastConnectedStream(Generic[T, B]):
    """A stream without keys, connected with a broadcast one."""

    def __init__(self, first: DataStream[T], second: BroadcastStream[B]) -> None:
        _check_same_environment(first, second._stream)
        self._first = first
        self._second = second

    @overload
    def process(self, function: BroadcastProcessFunction[T, B, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: BroadcastProcesses[T, B, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: BroadcastProcesses[T, B, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(
        self, function: BroadcastProcesses[T, B, O], output_type: PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Run both through a BroadcastProcessFunction; within an epoch the broadcast records come first."""
        call = "process() on a stream without keys and a broadcast one"
        is_keyed = isinstance(function, KeyedBroadcastProcessFunction)
        other = "A KeyedBroadcastProcessFunction needs key_by before connect." if is_keyed else ""
        check_kind(call, function, BroadcastProcessFunction, _BOTH_ELEMENTS, other)
        methods = ["process_element", "process_broadcast_element"]
        of = declared(output_type, produced_type(function, methods, self._first.type))
        kind = ConnectKind(function, self._second._descriptors)
        return self._first._connected(kind, self._second._stream, None, of)


class KeyedBroadcastConnectedStream(Generic[K, T, B]):
    """A keyed stream, connected with a broadcast one."""

    def __init__(self, first: KeyedStream[K, T], second: BroadcastStream[B]) -> None:
        _check_same_environment(first, second._stream)
        self._first = first
        self._second = second

    @overload
    def process(self, function: KeyedBroadcastProcessFunction[K, T, B, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedBroadcastProcesses[K, T, B, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedBroadcastProcesses[K, T, B, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(
        self, function: KeyedBroadcastProcesses[K, T, B, O], output_type: PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Run both through a KeyedBroadcastProcessFunction; within an epoch the broadcast records come first."""
        call = "process() on a keyed and a broadcast stream"
        check_kind(call, function, KeyedBroadcastProcessFunction, _BOTH_ELEMENTS)
        methods = ["process_element", "process_broadcast_element", "on_timer"]
        of = declared(output_type, produced_type(function, methods, self._first.type))
        kind = ConnectKind(function, self._second._descriptors)
        return self._first._connected(kind, self._second._stream, None, of)


class ConnectedStreams(Generic[K, T, T2]):
    """Two streams with keys of the same type that share the state of each key."""

    def __init__(self, first: KeyedStream[K, T], second: KeyedStream[K, T2]) -> None:
        _check_same_environment(first, second)
        one, other = first._key.type, second._key.type
        if one != other:
            raise JobGraphError(
                f"connect() of streams with keys of different types: {one.name} and {other.name}",
                hint="Key both by the same type: a key's state is shared between them.",
            )
        self._first = first
        self._second = second

    @overload
    def process(self, function: KeyedCoProcessFunction[K, T, T2, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedCoProcesses[K, T, T2, O]) -> DataStream[O]: ...

    @overload
    def process(self, function: KeyedCoProcesses[K, T, T2, O], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(
        self, function: KeyedCoProcesses[K, T, T2, O], output_type: PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Run both through one function; the order between the two streams is undefined."""
        defines = "process_element1(value, ctx) and process_element2(value, ctx)"
        check_kind("process() on two keyed streams", function, KeyedCoProcessFunction, defines)
        methods = ["process_element1", "process_element2", "on_timer"]
        of = declared(output_type, produced_type(function, methods, self._first.type))
        return self._first._connected(ConnectKind(function), self._second, self._second._key, of)


_BOTH_ELEMENTS = "process_element(value, ctx) and process_broadcast_element(value, ctx)"


def not_connectable(first: Stream[Any], other: Any) -> JobGraphError:
    """Return the error for a stream that is neither broadcast nor, like the first, keyed."""
    if not hasattr(other, "_inputs"):
        return JobGraphError(f"connect() takes a stream, not {type(other).__name__}", hint=stream_hint(other))
    which = "neither has" if first._key is other._key else "only one has"
    return JobGraphError(
        f"connect() of two streams needs keys on both: {which} keys",
        hint="Put key_by in front of both, or connect one with the broadcast() of the other.",
    )


def stream_hint(given: Any) -> str | None:
    """Return the hint for a value given in place of a stream."""
    return "A function that builds a stream must return it." if given is None else None


def _check_same_environment(first: Stream[Any], second: Stream[Any]) -> None:
    if first._environment is not second._environment:
        raise JobGraphError(
            "streams of different environments cannot be connected", hint="Build both with one environment."
        )
