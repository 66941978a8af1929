"""Descriptors: the name and type under which a function asks for state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkdam.errors import JobGraphError


@dataclass(frozen=True)
class StateDescriptor:
    """What all kinds of state have in common: a name, unique in its operator, and the type of one element."""

    name: str
    type: Any

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise JobGraphError(
                f"a state must have a name, not {self.name!r}",
                hint=f'Write {type(self).__name__}("some name", <type>); by its name a restart finds the state.',
            )
        if self.type is None:
            raise JobGraphError(
                f'state "{self.name}" has no type',
                hint=f'Write {type(self).__name__}("{self.name}", int), or whatever type its values have.',
            )


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key; `default` is what a key without one reads."""

    default: Any = None
