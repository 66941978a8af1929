"""Descriptors: the name and type under which a function asks for state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from checkdam.errors import JobGraphError
from checkdam.state.ttl import StateTtlConfig

TIMER_STATES = "_timers/"
"""How the names of the states begin that hold an operator's timers."""


class Aggregate(Protocol):
    """How an aggregating state gathers values into an accumulator and tells the result (see AggregateFunction)."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any: ...

    def get_result(self, accumulator: Any) -> Any: ...


@dataclass(frozen=True)
class StateDescriptor:
    """What all kinds of state have in common: a name, unique in its operator."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise JobGraphError(
                f"a state must have a name, not {self.name!r}",
                hint=f'Write {type(self).__name__}("some name", <type>); by its name a restart finds the state.',
            )
        if self.name.startswith(TIMER_STATES):
            raise JobGraphError(
                f'the name of state "{self.name}" begins with "{TIMER_STATES}", under which timers are kept',
                hint="Give it another name.",
            )
        ttl = getattr(self, "ttl", None)
        if ttl is not None and not isinstance(ttl, StateTtlConfig):
            raise JobGraphError(
                f'the ttl of state "{self.name}" must be a StateTtlConfig, not {ttl!r}',
                hint="Write ttl=StateTtlConfig(timedelta(hours=1)), or leave it out to keep the state for ever.",
            )

    def _check_type(self, of: Any, which: str = "type") -> None:
        if of is None:
            raise JobGraphError(
                f'state "{self.name}" has no {which}',
                hint=f'Write {type(self).__name__}("{self.name}", int), or whatever type its values have.',
            )


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key; `default` is what a key without one reads.

    With a `ttl` a default has no effect, as in Flink: a key whose value is missing or has expired reads None.
    """

    type: Any
    default: Any = None
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list of elements per key; in operator state, a list per subtask that is dealt out anew on rescaling."""

    type: Any
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value per key, into which every added value is reduced by `reduce(kept, added)`."""

    type: Any
    reduce: Callable[[Any, Any], Any] | Any  # or a ReduceFunction
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.type)
        if not callable(self.reduce) and not hasattr(self.reduce, "reduce"):
            raise JobGraphError(
                f'state "{self.name}" has no function to reduce with, but {self.reduce!r}',
                hint=f'Write ReducingStateDescriptor("{self.name}", int, lambda kept, added: kept + added).',
            )


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator of `type` per key, fed and read through `aggregate`; results may have another type."""

    type: Any
    aggregate: Aggregate
    ttl: StateTtlConfig | None = None

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
class MapStateDescriptor(StateDescriptor):
    """A mapping per key, each entry of it kept on its own; also the form of broadcast state.

    With None as `key_type` it has at most one entry, under the key None, as with Flink's Types.VOID.
    """

    key_type: Any
    value_type: Any
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_type(self.value_type, "value type")
