"""Connected streams: two streams read by one function, which may share state between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkdam.api.declarations import check_kind, declared, produced_type
from checkdam.errors import JobGraphError
from checkdam.graph.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from checkdam.graph.operators import ConnectKind
from checkdam.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from checkdam.api.streams import DataStream


class BroadcastStream:
    """Records that every subtask sees, and the states they may write. Only good for `connect`."""

    def __init__(self, stream: DataStream, descriptors: tuple[MapStateDescriptor, ...]) -> None:
        self._stream = stream
        self._descriptors = descriptors
        if not descriptors:
            raise JobGraphError(
                "broadcast() names no state",
                hint='Write broadcast(MapStateDescriptor("rules", str, Rule)), one for each state it may write.',
            )
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise JobGraphError(
                    f"broadcast() takes MapStateDescriptors, not {type(descriptor).__name__}",
                    hint="Broadcast state is a mapping: key it by what tells its entries apart.",
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
                f'broadcast() names state "{twice}" twice', hint="Give each broadcast state a name of its own."
            )


class BroadcastConnectedStream:
    """A stream, with or without keys, beside a broadcast one."""

    def __init__(self, first: DataStream, second: BroadcastStream) -> None:
        _check_same_environment(first, second._stream)
        self._first = first
        self._second = second

    def process(
        self, function: KeyedBroadcastProcessFunction | BroadcastProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Run both through one function; within an epoch the broadcast records come first, on every subtask.

        Takes a KeyedBroadcastProcessFunction if the first stream has keys, else a BroadcastProcessFunction.
        """
        methods = ["process_element", "process_broadcast_element"]
        defines = "process_element(value, ctx) and process_broadcast_element(value, ctx)"
        if self._first._key is not None:
            call = "process() on a keyed and a broadcast stream"
            check_kind(call, function, KeyedBroadcastProcessFunction, defines)
            methods.append("on_timer")
        else:
            call = "process() on a stream without keys and a broadcast one"
            other = "One with keys needs key_by before connect." if _is_keyed(function) else ""
            check_kind(call, function, BroadcastProcessFunction, defines, other)
        of = declared(output_type, produced_type(function, methods, self._first.type))
        kind = ConnectKind(function, self._second._descriptors)
        return self._first._connected(kind, self._second._stream, None, of)


class ConnectedStreams:
    """Two streams with keys of the same type, which share the state of a key."""

    def __init__(self, first: DataStream, second: DataStream) -> None:
        _check_same_environment(first, second)
        if first._key is None or second._key is None:
            which = "neither has" if first._key is second._key else "only one has"
            raise JobGraphError(
                f"connect() of two streams of which {which} keys",
                hint="Put key_by in front of both, or connect one with the broadcast() of the other.",
            )
        one, other = first._key.type, second._key.type
        if one != other:
            raise JobGraphError(
                f"connect() of streams with keys of different types: {one.name} and {other.name}",
                hint="Key both by the same type: a key's state is shared between them.",
            )
        self._first = first
        self._second = second

    def process(self, function: KeyedCoProcessFunction, output_type: Any = None) -> DataStream:
        """Run both through one function; the order between the two is not fixed."""
        defines = "process_element1(value, ctx) and process_element2(value, ctx)"
        check_kind("process() on two keyed streams", function, KeyedCoProcessFunction, defines)
        methods = ["process_element1", "process_element2", "on_timer"]
        of = declared(output_type, produced_type(function, methods, self._first.type))
        return self._first._connected(ConnectKind(function), self._second, self._second._key, of)


def _is_keyed(function: Any) -> bool:
    return isinstance(function, KeyedBroadcastProcessFunction)


def _check_same_environment(first: DataStream, second: DataStream) -> None:
    if first._environment is not second._environment:
        raise JobGraphError(
            "streams of different environments cannot be connected", hint="Build both with one environment."
        )
