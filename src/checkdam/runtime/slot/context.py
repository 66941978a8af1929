"""What user functions see of the slot they live in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkdam.backends.contract import KeyedStateStore
from checkdam.errors import JobGraphError
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState


@dataclass(frozen=True)
class FunctionContext:
    """Handed to `open`."""

    operator_name: str
    subtask_index: int
    parallelism: int
    store: KeyedStateStore | None

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        if self.store is None:
            raise JobGraphError(
                f'operator "{self.operator_name}" asks for keyed state "{descriptor.name}" on a stream without keys',
                hint="Put key_by(…) in front of it.",
            )
        return self.store.value_state(descriptor)


class KeyedContext:
    """Handed to `process_element` with each record."""

    __slots__ = ("_store",)

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store

    @property
    def current_key(self) -> Any:
        return self._store.current_key
