"""State descriptors: the name and type under which a function asks for state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from typing_extensions import TypeForm

from checkdam.errors import JobGraphError
from checkdam.state.ttl import StateTtlConfig
from checkdam.types.hints import PickleType, SchemaType

TIMER_STATES = "_timers/"
"""The name prefix of the states that hold an operator's timers."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741  as Flink: input, accumulator, output
A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)


class Aggregate(Protocol[I_contra, A, O_co]):
    """How an aggregating state adds values to an accumulator and computes the result (see AggregateFunction)."""

    def create_accumulator(self) -> A: ...

    def add(self, value: I_contra, accumulator: A, /) -> A: ...

    def get_result(self, accumulator: A, /) -> O_co: ...


class Reduce(Protocol[T]):
    """How a reducing state combines two values (see ReduceFunction)."""

    def reduce(self, accumulated: T, value: T, /) -> T: ...


@dataclass(frozen=True)
class StateDescriptor:
    """The common part of all state descriptors: a name, unique within the operator."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise JobGraphError(
                f"a state must have a name, not {self.name!r}",
                hint=f'Write {type(self).__name__}("some name", <type>); a restart finds the state by its name.',
            )
        if self.name.startswith(TIMER_STATES):
            raise JobGraphError(
                f'the name of state "{self.name}" begins with "{TIMER_STATES}", which is reserved for timers',
                hint="Give it another name.",
            )
        ttl = getattr(self, "ttl", None)
        if ttl is not None and not isinstance(ttl, StateTtlConfig):
            raise JobGraphError(
                f'the ttl of state "{self.name}" must be a StateTtlConfig, not {ttl!r}',
                hint="Write ttl=StateTtlConfig(timedelta(hours=1)), or omit it to keep the state forever.",
            )

    def _check_type(self, of: Any, which: str = "type") -> None:
        if of is None:
            raise JobGraphError(
                f'state "{self.name}" has no {which}',
                hint=f'Write {type(self).__name__}("{self.name}", int), or whatever type its values have.',
            )


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key; a key without a value reads `default`.

    With a `ttl` a default has no effect, as in Flink: a key whose value is missing or expired reads None.
    """

    type: Any
    default: Any = None
    ttl: StateTtlConfig | None = None

    if TYPE_CHECKING:  # a value always exists with a default and no TTL; otherwise it may be None

        @overload
        def __init__(
            self: ValueStateDescriptor[T | None],
            name: str,
            type: TypeForm[T | None],
            default: None = None,
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        @overload
        def __init__(self, name: str, type: TypeForm[T], default: T, ttl: None = None) -> None: ...

        @overload
        def __init__(
            self: ValueStateDescriptor[T | None], name: str, type: TypeForm[T], default: T, ttl: StateTtlConfig
        ) -> None: ...

        @overload
        def __init__(self, name: str, type: PickleType[T], default: T, ttl: None = None) -> None: ...

        @overload
        def __init__(
            self: ValueStateDescriptor[T | None],
            name: str,
            type: PickleType[T],
            default: T | None = None,
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self: ValueStateDescriptor[Any],
            name: str,
            type: SchemaType,
            default: object = None,
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        def __init__(
            self, name: str, type: object, default: object = None, ttl: StateTtlConfig | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor, Generic[T]):
    """A list of elements per key; in operator state, a list per subtask, redistributed on rescaling."""

    type: Any
    ttl: StateTtlConfig | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(self, name: str, type: TypeForm[T], ttl: StateTtlConfig | None = None) -> None: ...

        @overload
        def __init__(self, name: str, type: PickleType[T], ttl: StateTtlConfig | None = None) -> None: ...

        @overload
        def __init__(
            self: ListStateDescriptor[Any], name: str, type: SchemaType, ttl: StateTtlConfig | None = None
        ) -> None: ...

        def __init__(self, name: str, type: object, ttl: StateTtlConfig | None = None) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """One value per key; every added value is combined with it by `reduce(kept, added)`."""

    type: Any
    reduce: Any  # a function of two values, or a ReduceFunction
    ttl: StateTtlConfig | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, type: TypeForm[T], reduce: Reduce[T], ttl: StateTtlConfig | None = None
        ) -> None: ...

        @overload
        def __init__(
            self, name: str, type: TypeForm[T], reduce: Callable[[T, T], T], ttl: StateTtlConfig | None = None
        ) -> None: ...

        @overload
        def __init__(
            self,
            name: str,
            type: PickleType[T],
            reduce: Reduce[T] | Callable[[T, T], T],
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self: ReducingStateDescriptor[Any],
            name: str,
            type: SchemaType,
            reduce: Reduce[Any] | Callable[[Any, Any], Any],
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        def __init__(self, name: str, type: object, reduce: object, ttl: StateTtlConfig | None = None) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)
        if not callable(self.reduce) and not hasattr(self.reduce, "reduce"):
            raise JobGraphError(
                f'state "{self.name}" needs a function to reduce with, not {self.reduce!r}',
                hint=f'Write ReducingStateDescriptor("{self.name}", int, lambda kept, added: kept + added).',
            )


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor, Generic[I, A, O]):
    """An accumulator of `type` per key, written and read through `aggregate`; results may have another type."""

    type: Any
    aggregate: Aggregate[I, A, O]
    ttl: StateTtlConfig | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, type: TypeForm[A], aggregate: Aggregate[I, A, O], ttl: StateTtlConfig | None = None
        ) -> None: ...

        @overload
        def __init__(
            self,
            name: str,
            type: PickleType[A] | SchemaType,
            aggregate: Aggregate[I, A, O],
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        def __init__(
            self, name: str, type: object, aggregate: Aggregate[I, A, O], ttl: StateTtlConfig | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)
        missing = [name for name in ("create_accumulator", "add", "get_result") if not hasattr(self.aggregate, name)]
        if missing:
            raise JobGraphError(
                f'the aggregate of state "{self.name}" has no {missing[0]}()',
                hint="Subclass AggregateFunction.",
            )


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """A mapping per key, with each entry stored separately; also the form of broadcast state.

    If `key_type` is None it has at most one entry, under the key None, as with Flink's Types.VOID.
    """

    key_type: Any
    value_type: Any
    ttl: StateTtlConfig | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, key_type: TypeForm[K], value_type: TypeForm[V], ttl: StateTtlConfig | None = None
        ) -> None: ...

        @overload
        def __init__(
            self, name: str, key_type: TypeForm[K], value_type: PickleType[V], ttl: StateTtlConfig | None = None
        ) -> None: ...

        @overload
        def __init__(
            self: MapStateDescriptor[K, Any],
            name: str,
            key_type: TypeForm[K],
            value_type: SchemaType,
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self: MapStateDescriptor[Any, V],
            name: str,
            key_type: SchemaType,
            value_type: TypeForm[V],
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self: MapStateDescriptor[Any, Any],
            name: str,
            key_type: SchemaType,
            value_type: SchemaType,
            ttl: StateTtlConfig | None = None,
        ) -> None: ...

        def __init__(
            self, name: str, key_type: object, value_type: object, ttl: StateTtlConfig | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.value_type, "value type")
