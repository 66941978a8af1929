"""Joins of two streams: within windows, and within intervals of event time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from typing_extensions import TypeForm, TypeVar

from checkdam.api.declarations import check_durable, check_kind, declared, key_selector, plain_callable
from checkdam.api.windowed_streams import Windowed, WindowSetting, check_late_type, window_setting
from checkdam.clock import milliseconds_in
from checkdam.errors import JobGraphError
from checkdam.graph.contexts import OutputTag
from checkdam.graph.function_shapes import CoGroups, Joins, ProcessesPair
from checkdam.graph.operators import IntervalJoinKind, KeySelector
from checkdam.graph.windowing.assigners import WindowAssigner
from checkdam.graph.windowing.interval_join import ProcessJoinFunction
from checkdam.graph.windowing.window_contents import TwoSided, WindowCalls
from checkdam.graph.windowing.window_functions import CoGroupFunction, FlatJoinFunction, JoinFunction, window_output
from checkdam.types.hints import PickleType, SchemaType
from checkdam.types.type_info import TypeInfo

if TYPE_CHECKING:
    from checkdam.api.streams import DataStream, KeyedStream, Stream

K = TypeVar("K")
T = TypeVar("T")
T2 = TypeVar("T2")
O = TypeVar("O")  # noqa: E741


class _ByKeys(Generic[T, T2]):
    """Two streams that are matched by key, once `where` and `equal_to` say by which."""

    def __init__(self, first: Stream[T], second: Stream[T2]) -> None:
        if not hasattr(second, "_inputs"):
            raise JobGraphError(f"a stream is joined with another stream, not with {type(second).__name__}")
        if first._environment is not second._environment:
            raise JobGraphError(
                "streams of different environments cannot be joined", hint="Build both with one environment."
            )
        self._first = first
        self._second = second
        self._first_key: KeySelector | None = None
        self._second_key: KeySelector | None = None

    def where(self, key: Callable[[T], Any] | str | int, key_type: Any = None) -> Self:
        """Set the key of the first stream: a function of the record, or the name or index of a column."""
        return self._with(_first_key=key_selector(key, key_type, self._first.type))

    def equal_to(self, key: Callable[[T2], Any] | str | int, key_type: Any = None) -> Self:
        """Set the key of the second stream, which must have the type of the first one's."""
        return self._with(_second_key=key_selector(key, key_type, self._second.type))

    def _with(self, **keys: KeySelector) -> Self:
        changed = object.__new__(type(self))
        changed.__dict__ = {**self.__dict__, **keys}
        return changed

    def _keyed(self) -> tuple[KeyedStream[Any, T], KeySelector]:
        """Return the first stream under its key, and the key of the second."""
        one, other = self._first_key, self._second_key
        if one is None or other is None:
            missing = "where" if one is None else "equal_to"
            raise JobGraphError(f"the key of one stream is missing: call {missing}(key) before window(…)")
        if one.type != other.type:
            raise JobGraphError(
                f"the keys of both streams have different types: {one.type.name} and {other.type.name}",
                hint="Pass key_type=… to where() and equal_to().",
            )
        return self._first._keyed_by(one), other


class JoinedStreams(_ByKeys[T, T2]):
    """Two streams to join within windows: continue with `where`, `equal_to` and `window`."""

    def window(self, assigner: WindowAssigner[Any, Any]) -> WindowedJoin[T, T2]:
        """Divide the records of both streams into windows; records join within a window."""
        return WindowedJoin(*self._keyed(), self._second, window_setting(assigner))


class CoGroupedStreams(_ByKeys[T, T2]):
    """Two streams to group within windows: continue with `where`, `equal_to` and `window`."""

    def window(self, assigner: WindowAssigner[Any, Any]) -> WindowedCoGroup[T, T2]:
        """Divide the records of both streams into windows; records are grouped within a window."""
        return WindowedCoGroup(*self._keyed(), self._second, window_setting(assigner))


class _OfTwoStreams(Windowed[Any], Generic[T, T2]):
    """Windows of two streams."""

    def __init__(
        self, first: KeyedStream[Any, T], second_key: KeySelector, second: Stream[T2], setting: WindowSetting
    ) -> None:
        super().__init__(setting)
        self._first = first
        self._second = second
        self._second_key = second_key

    def side_output_late_data(self, tag: OutputTag[Any]) -> Self:
        raise JobGraphError(
            "a join of windows has no side output for late records",
            hint="Join with interval_join(…), which has one for each side, or filter late records before.",
        )

    def _apply(self, name: str, function: Any, output: Any) -> DataStream[Any]:
        types = self._first.type, self._second.type
        for of in types:
            check_durable(name, of)
        kind = self._setting.kind(TwoSided(*types), WindowCalls(None, function))
        return self._first._connected(kind, self._second, self._second_key, output)


class WindowedJoin(_OfTwoStreams[T, T2]):
    """A join within windows: its function comes next, and then its uid."""

    @overload
    def apply(
        self,
        function: FlatJoinFunction[T, T2, O],
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    @overload
    def apply(
        self,
        function: Joins[T, T2, O] | Callable[[T, T2], O],
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    def apply(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Call a function with every pair of records that have the same key and window.

        A JoinFunction or a plain function returns one record; a FlatJoinFunction any number.
        """
        for kind in (JoinFunction, FlatJoinFunction):
            if isinstance(function, type) and issubclass(function, kind):
                check_kind("apply() of a join", function, kind, "join(first, second)")
        if not isinstance(function, JoinFunction | FlatJoinFunction):
            plain_callable(JoinFunction.join, function)
        call = getattr(function, "join", function)
        return self._apply("join", function, declared(output_type, window_output(function, call, self._first.type)))


class WindowedCoGroup(_OfTwoStreams[T, T2]):
    """Records of two streams grouped within windows: its function comes next, and then its uid."""

    def apply(
        self, function: CoGroups[T, T2, O], output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None
    ) -> DataStream[O]:
        """Call a CoGroupFunction with all records of both streams that have the same key and window."""
        check_kind("apply() of a co_group", function, CoGroupFunction, "co_group(first, second)")
        output = declared(output_type, window_output(function, function.co_group, self._first.type))
        return self._apply("co_group", function, output)


class IntervalJoin(Generic[K, T, T2]):
    """Two keyed streams to join by their timestamps: continue with `between`."""

    def __init__(self, first: KeyedStream[K, T], second: KeyedStream[K, T2]) -> None:
        if getattr(second, "_key", None) is None:
            raise JobGraphError("interval_join() takes a keyed stream", hint="Put key_by in front of both streams.")
        if first._environment is not second._environment:
            raise JobGraphError(
                "streams of different environments cannot be joined", hint="Build both with one environment."
            )
        one, other = first._key.type, second._key.type
        if one != other:
            raise JobGraphError(f"the keys of both streams have different types: {one.name} and {other.name}")
        self._first = first
        self._second = second

    def between(
        self, lower: timedelta, upper: timedelta, *, lower_exclusive: bool = False, upper_exclusive: bool = False
    ) -> BoundedIntervalJoin[K, T, T2]:
        """Join a record at time t with those of the other stream from t + lower to t + upper. Both may be negative."""
        for bound in (lower, upper):
            if not isinstance(bound, timedelta):
                raise JobGraphError(
                    f"the bounds of an interval join must be timedeltas, not {bound!r}",
                    hint="Write between(timedelta(minutes=-5), timedelta(minutes=5)).",
                )
        first, last = milliseconds_in(lower) + lower_exclusive, milliseconds_in(upper) - upper_exclusive
        if lower > upper or first > last:
            raise JobGraphError(f"no time lies between the bounds {lower} and {upper}")
        return BoundedIntervalJoin(self._first, self._second, (first, last))


class BoundedIntervalJoin(Generic[K, T, T2]):
    """An interval join with its bounds: its function comes next, and then its uid."""

    def __init__(
        self,
        first: KeyedStream[K, T],
        second: KeyedStream[K, T2],
        bounds: tuple[int, int],
        late_tags: tuple[OutputTag[T] | None, OutputTag[T2] | None] = (None, None),
    ) -> None:
        self._first = first
        self._second = second
        self._bounds = bounds
        self._late_tags = late_tags

    def side_output_left_late_data(self, tag: OutputTag[T]) -> BoundedIntervalJoin[K, T, T2]:
        """Emit late records of the first stream to a side output, instead of dropping them."""
        self._check_late(0, tag, self._first.type)
        return BoundedIntervalJoin(self._first, self._second, self._bounds, (tag, self._late_tags[1]))

    def side_output_right_late_data(self, tag: OutputTag[T2]) -> BoundedIntervalJoin[K, T, T2]:
        """Emit late records of the second stream to a side output, instead of dropping them."""
        self._check_late(1, tag, self._second.type)
        return BoundedIntervalJoin(self._first, self._second, self._bounds, (self._late_tags[0], tag))

    def _check_late(self, side: int, tag: OutputTag[Any], of: TypeInfo) -> None:
        if not isinstance(tag, OutputTag):
            raise JobGraphError(
                f"late records go to an OutputTag, not {tag!r}", hint='Write OutputTag("late", <type>).'
            )
        before = self._late_tags[side]
        if before is not None:
            raise JobGraphError(
                f'late records already go to the side output "{before.name}"', hint="Set one tag for each side."
            )
        if any(each is not None and each.name == tag.name for each in self._late_tags):
            raise JobGraphError(f'late records already go to the side output "{tag.name}"', hint="Use another tag.")
        check_late_type(tag, of)

    def process(
        self, function: ProcessesPair[T, T2, O], output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None
    ) -> DataStream[O]:
        """Call a ProcessJoinFunction with every pair of records."""
        check_kind("process() of an interval join", function, ProcessJoinFunction, "process_element(left, right, ctx)")
        types = self._first.type, self._second.type
        for of in types:
            check_durable("interval_join", of)
        left, right = self._late_tags
        kind = IntervalJoinKind(function, types, *self._bounds, (left, right))
        output = declared(output_type, window_output(function, function.process_element, types[0]))
        return self._first._connected(kind, self._second, self._second._key, output)
