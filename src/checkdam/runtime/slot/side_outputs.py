"""The side outputs of a function, by tag, until the level takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from checkdam.graph.contexts import OutputTag
from checkdam.types.batch import Batch
from checkdam.types.record_copies import copier
from checkdam.types.type_info import TypeInfo


class SideOutputs:
    """The side outputs of one operator. Output that no operator reads is dropped at once."""

    def __init__(self, types: Mapping[str, TypeInfo]) -> None:
        self._types = types
        self._copiers = {tag: copier(of) for tag, of in types.items()}
        self._rows: dict[str, list[Any]] = {}
        self._stamps: dict[str, list[int | None]] = {}

    def add(self, tag: OutputTag[Any], value: Any, timestamp: int | None) -> None:
        try:
            name = tag.name
        except AttributeError:
            raise TypeError(f'ctx.output() takes an OutputTag, not {tag!r}: write OutputTag("late", str)') from None
        if name not in self._types:
            return
        copied = self._copiers[name]
        self._rows.setdefault(name, []).append(value if copied is None else copied.copy(value))
        self._stamps.setdefault(name, []).append(timestamp)

    def take(self) -> Mapping[str, Batch]:
        """Return what was added since the last call, by tag, with timestamps where there are any."""
        if not self._rows:
            return {}
        rows, stamps = self._rows, self._stamps
        self._rows, self._stamps = {}, {}
        return {tag: Batch(self._types[tag], rows=rows[tag], timestamps=_if_any(stamps[tag])) for tag in rows}


class FunctionOutputs:
    """The side outputs that a window or join function may use: not those that take the operator's late records."""

    def __init__(self, outputs: SideOutputs, late_tags: Iterable[OutputTag[Any] | None]) -> None:
        self._outputs = outputs
        self._late = {tag.name for tag in late_tags if tag is not None}

    def add(self, tag: OutputTag[Any], value: Any, timestamp: int | None) -> None:
        if self._late and getattr(tag, "name", None) in self._late:
            raise ValueError(
                f'ctx.output() uses the tag "{tag.name}", which takes the late records of the same operator: '
                "use another tag"
            )
        self._outputs.add(tag, value, timestamp)


def _if_any(stamps: list[int | None]) -> list[int | None] | None:
    return stamps if any(stamp is not None for stamp in stamps) else None
