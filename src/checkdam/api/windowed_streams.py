"""Streams divided into windows, before a function says what comes out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from typing_extensions import TypeForm, TypeVar

from checkdam.api.declarations import (
    accumulator_of,
    check_durable,
    check_kind,
    declared,
    plain_callable,
    returned_type,
)
from checkdam.errors import JobGraphError
from checkdam.graph.contexts import OutputTag
from checkdam.graph.function_shapes import (
    Aggregates,
    AppliesAllWindow,
    AppliesWindow,
    ProcessesAllWindow,
    ProcessesWindow,
    Reducer,
)
from checkdam.graph.functions import AggregateFunction, ReduceFunction
from checkdam.graph.operators import WindowKind
from checkdam.graph.windowing.arguments import checked_count, checked_duration
from checkdam.graph.windowing.assigners import (
    GlobalWindows,
    MergingWindowAssigner,
    WindowAssigner,
    checked_window_type,
)
from checkdam.graph.windowing.evictors import CountEvictor, Evictor
from checkdam.graph.windowing.triggers import CountTrigger, PurgingTrigger, Trigger, checked_trigger
from checkdam.graph.windowing.window_contents import (
    Aggregated,
    FieldAggregated,
    KeptRecords,
    Reduced,
    WindowCalls,
    WindowContents,
)
from checkdam.graph.windowing.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
    window_output,
)
from checkdam.state.descriptors import StateDescriptor
from checkdam.types.hints import PickleType, SchemaType
from checkdam.types.type_info import TypeInfo

if TYPE_CHECKING:
    from checkdam.api.streams import DataStream, KeyedStream

K = TypeVar("K")
T = TypeVar("T")
A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
R = TypeVar("R")
W = TypeVar("W")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True)
class WindowSetting:
    """How a stream is divided into windows."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness: int = 0
    late_tag: OutputTag[Any] | None = None

    def kind(self, contents: WindowContents, functions: WindowCalls) -> WindowKind:
        checked_window_type(self.assigner)
        _check_can_merge(self.assigner, self.trigger)
        _check_states(self.trigger)
        return WindowKind(
            assigner=self.assigner,
            trigger=self.trigger,
            contents=contents,
            function=functions,
            evictor=self.evictor,
            allowed_lateness=self.allowed_lateness,
            late_tag=self.late_tag,
        )


def window_setting(assigner: Any) -> WindowSetting:
    """Return the setting that an assigner alone gives."""
    if not isinstance(assigner, WindowAssigner):
        is_class = isinstance(assigner, type) and issubclass(assigner, WindowAssigner)
        hint = (
            f"Make one: {assigner.__name__}(…)."
            if is_class
            else "Write TumblingEventTimeWindows(timedelta(minutes=1))."
        )
        raise JobGraphError(f"windows are made by a WindowAssigner, not {assigner!r}", hint=hint)
    trigger = checked_trigger("get_default_trigger() of the assigner", assigner.get_default_trigger())
    by_event_time: Any = assigner.is_event_time()
    if not isinstance(by_event_time, bool):
        raise JobGraphError(
            f"is_event_time() of {type(assigner).__name__} must return True or False, and returned {by_event_time!r}"
        )
    return WindowSetting(assigner, trigger)


def count_setting(size: int, slide: int | None) -> WindowSetting:
    """Return the setting of windows that hold a number of records."""
    size = checked_count("the size of a count window", size)
    if slide is None:
        return WindowSetting(GlobalWindows(), PurgingTrigger(CountTrigger(size)))
    slide = checked_count("the slide of count windows", slide)
    return WindowSetting(GlobalWindows(), CountTrigger(slide), CountEvictor(size))


def check_late_type(tag: OutputTag[Any] | None, of: TypeInfo) -> None:
    """Check that a side output takes late records, which are of type `of`."""
    if tag is not None and tag.type is not None and declared(tag.type, None) != of:
        raise JobGraphError(
            f'late records are of type {of.name}, and the side output "{tag.name}" is of type '
            f"{declared(tag.type, None).name}",
            hint="Give the OutputTag the type of the stream.",
        )


def _check_can_merge(assigner: WindowAssigner[Any, Any], trigger: Trigger[Any, Any]) -> None:
    if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise JobGraphError(
            f"{type(trigger).__name__} cannot work with windows that merge, as those of {type(assigner).__name__} do",
            hint="Use another trigger, or define can_merge() and on_merge(window, ctx) in it.",
        )


def _check_states(trigger: Trigger[Any, Any]) -> None:
    states: Any = trigger.states
    if not isinstance(states, Sequence) or not all(isinstance(each, StateDescriptor) for each in states):
        raise JobGraphError(
            f"{type(trigger).__name__}.states must be a property that returns a list of descriptors, not {states!r}"
        )


class Windowed(Generic[T]):
    """The part that windows of all streams have in common: trigger, evictor, lateness."""

    def __init__(self, setting: WindowSetting) -> None:
        self._setting = setting

    def trigger(self, trigger: Trigger[T, Any]) -> Self:
        """Let another trigger decide when a window fires."""
        checked_trigger("trigger()", trigger)
        _check_can_merge(self._setting.assigner, trigger)
        return self._with(trigger=trigger)

    def evictor(self, evictor: Evictor[T, Any]) -> Self:
        """Let an evictor remove records when a window fires. The window then keeps every record."""
        if not isinstance(evictor, Evictor):
            raise JobGraphError(f"evictor() takes an Evictor, not {evictor!r}", hint="Write evictor(CountEvictor(10)).")
        return self._with(evictor=evictor)

    def allowed_lateness(self, lateness: timedelta) -> Self:
        """Keep a window for this long after the watermark has passed its end; late records let it fire again.

        Has no effect on windows in processing time.
        """
        return self._with(allowed_lateness=checked_duration("the allowed lateness", lateness, at_least=0))

    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Emit records that come too late for every window to a side output, instead of dropping them."""
        if not isinstance(tag, OutputTag):
            raise JobGraphError(
                f"side_output_late_data() takes an OutputTag, not {tag!r}", hint='Write OutputTag("late", <type>).'
            )
        if self._setting.late_tag is not None:
            raise JobGraphError(
                f'late records already go to the side output "{self._setting.late_tag.name}"',
                hint="Call side_output_late_data() once.",
            )
        return self._with(late_tag=tag)

    def _with(self, **changes: Any) -> Self:
        changed = object.__new__(type(self))
        changed.__dict__ = {**self.__dict__, "_setting": replace(self._setting, **changes)}
        return changed


class _OfOneStream(Windowed[T]):
    """Windows of one stream, with keys or without."""

    _process_class: type = ProcessWindowFunction
    _apply_class: type = WindowFunction
    _signature = "key, "

    def __init__(self, stream: KeyedStream[Any, T], setting: WindowSetting) -> None:
        super().__init__(setting)
        self._stream = stream

    def sum(self, field: int | str = 0) -> DataStream[T]:
        """Emit the sum of one field; the other fields are those of the window's first record."""
        return self._field("sum", field)

    def min(self, field: int | str = 0) -> DataStream[T]:
        """Emit the minimum of one field; the other fields are those of the window's first record."""
        return self._field("min", field)

    def max(self, field: int | str = 0) -> DataStream[T]:
        """Emit the maximum of one field; the other fields are those of the window's first record."""
        return self._field("max", field)

    def _field(self, how: str, field: int | str) -> DataStream[T]:
        of = self._stream.type
        contents = FieldAggregated(of, how, self._stream._aggregated_field(how, field))
        return self._add(f"window {how}", contents, WindowCalls(), of)

    def _reduce(self, function: Any, window_function: Any, output_type: Any) -> DataStream[Any]:
        plain_callable(ReduceFunction.reduce, function)
        check_durable("reduce", self._stream.type)
        contents = Reduced(self._stream.type, function)
        return self._incremental("window reduce", contents, function, window_function, self._stream.type, output_type)

    def _aggregate(
        self, function: Any, window_function: Any, accumulator_type: Any, output_type: Any
    ) -> DataStream[Any]:
        check_kind("aggregate()", function, AggregateFunction, "create_accumulator(), add() and get_result()")
        of = declared(accumulator_type, accumulator_of(function, self._stream.type))
        if not of.is_durable:
            raise JobGraphError(
                f"the accumulator of {type(function).__name__} is of type {of.name}, which has no durable form",
                hint="Annotate the result of create_accumulator, or pass accumulator_type=tuple[int, int].",
            )
        merges = isinstance(self._setting.assigner, MergingWindowAssigner)
        if merges and type(function).merge is AggregateFunction.merge:
            raise JobGraphError(
                f"{type(function).__name__} cannot merge two accumulators, which windows that merge need",
                hint="Define merge(one, other) in it.",
            )
        contents = Aggregated(self._stream.type, function, of)
        result = declared(None, returned_type(function, function.get_result, self._stream.type))
        return self._incremental("window aggregate", contents, function, window_function, result, output_type)

    def _incremental(
        self,
        name: str,
        contents: WindowContents,
        function: Any,
        window_function: Any,
        result: TypeInfo,
        output_type: Any,
    ) -> DataStream[Any]:
        calls = WindowCalls(function, window_function)
        if window_function is None:
            return self._add(name, contents, calls, declared(output_type, result))
        if isinstance(window_function, self._apply_class):
            method = window_function.apply  # type: ignore[attr-defined]
        else:
            defines = f"process({self._signature}ctx, elements)"
            check_kind("the window function", window_function, self._process_class, defines)
            method = window_function.process
        return self._add(name, contents, calls, declared(output_type, window_output(window_function, method, result)))

    def _whole(self, name: str, function: Any, wanted: type, method: str, defines: str, output_type: Any) -> Any:
        check_kind(f"{name}() on windows", function, wanted, defines)
        of = self._stream.type
        check_durable(f"{name}() on windows", of)
        output = declared(output_type, window_output(function, getattr(function, method), of))
        return self._add(f"window {name}", KeptRecords(of), WindowCalls(None, function), output)

    def _add(self, name: str, contents: WindowContents, calls: WindowCalls, output: TypeInfo) -> DataStream[Any]:
        check_late_type(self._setting.late_tag, self._stream.type)
        return self._stream._add_windows(name, self._setting.kind(contents, calls), output)


class WindowedStream(_OfOneStream[T], Generic[K, T, W]):
    """Records of a keyed stream, divided into windows. Not an operator: its function comes next, and then its uid."""

    @overload
    def process(self, function: ProcessesWindow[K, T, O, W]) -> DataStream[O]: ...

    @overload
    def process(self, function: ProcessesWindow[K, T, O, W], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def process(
        self, function: ProcessesWindow[K, T, O, W], output_type: PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Pass all records of a window that fires to a ProcessWindowFunction."""
        wanted, defines = ProcessWindowFunction, "process(key, ctx, elements)"
        return self._whole("process", function, wanted, "process", defines, output_type)  # type: ignore[no-any-return]

    @overload
    def apply(self, function: AppliesWindow[K, T, O, W]) -> DataStream[O]: ...

    @overload
    def apply(self, function: AppliesWindow[K, T, O, W], output_type: TypeForm[O]) -> DataStream[O]: ...

    @overload
    def apply(self, function: AppliesWindow[K, T, O, W], output_type: PickleType[O] | SchemaType) -> DataStream[O]: ...

    def apply(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Pass all records of a window that fires to a WindowFunction."""
        defines = "apply(key, window, elements)"
        return self._whole("apply", function, WindowFunction, "apply", defines, output_type)  # type: ignore[no-any-return]

    @overload
    def reduce(self, function: Reducer[T]) -> DataStream[T]: ...

    @overload
    def reduce(
        self, function: Reducer[T], window_function: ProcessesWindow[K, T, O, W] | AppliesWindow[K, T, O, W]
    ) -> DataStream[O]: ...

    @overload
    def reduce(
        self,
        function: Reducer[T],
        window_function: ProcessesWindow[K, T, O, W] | AppliesWindow[K, T, O, W],
        output_type: TypeForm[O] | PickleType[O] | SchemaType,
    ) -> DataStream[O]: ...

    def reduce(self, function: Any, window_function: Any = None, output_type: Any = None) -> DataStream[Any]:
        """Combine the records of a window one after the other, so that it keeps only one.

        The result is emitted, or passed to `window_function` as its only element.
        """
        return self._reduce(function, window_function, output_type)

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, O],
        *,
        accumulator_type: TypeForm[A] | PickleType[A] | SchemaType | None = None,
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, R],
        window_function: ProcessesWindow[K, R, O, W] | AppliesWindow[K, R, O, W],
        accumulator_type: TypeForm[A] | PickleType[A] | SchemaType | None = None,
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    def aggregate(
        self, function: Any, window_function: Any = None, accumulator_type: Any = None, output_type: Any = None
    ) -> DataStream[Any]:
        """Aggregate the records of a window in an accumulator, so that it keeps only that.

        The result is emitted, or passed to `window_function` as its only element.
        """
        return self._aggregate(function, window_function, accumulator_type, output_type)


class AllWindowedStream(_OfOneStream[T], Generic[T, W]):
    """All records of a stream, divided into windows by one subtask. Not an operator: its function comes next."""

    _process_class = ProcessAllWindowFunction
    _apply_class = AllWindowFunction
    _signature = ""

    @overload
    def process(self, function: ProcessesAllWindow[T, O, W]) -> DataStream[O]: ...

    @overload
    def process(
        self, function: ProcessesAllWindow[T, O, W], output_type: TypeForm[O] | PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def process(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Pass all records of a window that fires to a ProcessAllWindowFunction."""
        wanted, defines = ProcessAllWindowFunction, "process(ctx, elements)"
        return self._whole("process", function, wanted, "process", defines, output_type)  # type: ignore[no-any-return]

    @overload
    def apply(self, function: AppliesAllWindow[T, O, W]) -> DataStream[O]: ...

    @overload
    def apply(
        self, function: AppliesAllWindow[T, O, W], output_type: TypeForm[O] | PickleType[O] | SchemaType
    ) -> DataStream[O]: ...

    def apply(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Pass all records of a window that fires to an AllWindowFunction."""
        defines = "apply(window, elements)"
        return self._whole("apply", function, AllWindowFunction, "apply", defines, output_type)  # type: ignore[no-any-return]

    @overload
    def reduce(self, function: Reducer[T]) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        function: Reducer[T],
        window_function: ProcessesAllWindow[T, O, W] | AppliesAllWindow[T, O, W],
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    def reduce(self, function: Any, window_function: Any = None, output_type: Any = None) -> DataStream[Any]:
        """Combine the records of a window one after the other, so that it keeps only one."""
        return self._reduce(function, window_function, output_type)

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, O],
        *,
        accumulator_type: TypeForm[A] | PickleType[A] | SchemaType | None = None,
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    @overload
    def aggregate(
        self,
        function: Aggregates[T, A, R],
        window_function: ProcessesAllWindow[R, O, W] | AppliesAllWindow[R, O, W],
        accumulator_type: TypeForm[A] | PickleType[A] | SchemaType | None = None,
        output_type: TypeForm[O] | PickleType[O] | SchemaType | None = None,
    ) -> DataStream[O]: ...

    def aggregate(
        self, function: Any, window_function: Any = None, accumulator_type: Any = None, output_type: Any = None
    ) -> DataStream[Any]:
        """Aggregate the records of a window in an accumulator, so that it keeps only that."""
        return self._aggregate(function, window_function, accumulator_type, output_type)
