"""Settings as objects: dataclasses whose fields are options, and which remember the fields that a program set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, field, fields
from typing import Any, ClassVar, Final, TypeVar, cast

from checkdam.config import ConfigOption, Configuration

_UNNAMED: Final = object()
_OPTION: Final = "option"
_READ: Final = "read"

S = TypeVar("S", bound="OptionFields")


def option_field(option: ConfigOption[Any], read: Callable[[Any], Any] = lambda value: value) -> Any:
    """Declare a field for an option; `read` converts the option's value to the field's.

    If it is left out, it has the default of the option, and does not count as set.
    """
    return field(default=cast(Any, _UNNAMED), metadata={_OPTION: option, _READ: read})


class OptionFields:
    """A frozen dataclass of options. An option that a program leaves out keeps the value of the command line or file.

    A subclass calls `_fill()` first in its `__post_init__`. `implies` are the options that follow from the choice of
    the class, such as the type of a restart strategy.
    """

    implies: ClassVar[tuple[tuple[ConfigOption[Any], object], ...]] = ()

    def _fill(self, none_is_unnamed: Collection[str] = ()) -> None:
        """Record which fields were set, and give the others their defaults; None may count as unset, by field."""
        mine = list(_option_fields(type(self)))
        given = {each.name: getattr(self, each.name) for each, _ in mine}
        named = frozenset(
            name
            for name, value in given.items()
            if value is not _UNNAMED and not (value is None and name in none_is_unnamed)
        )
        for each, option in mine:
            if each.name not in named:
                object.__setattr__(self, each.name, each.metadata[_READ](option.default))
        object.__setattr__(self, "_named", named)

    def names(self, *names: str) -> bool:
        """Return whether all these fields were set."""
        named: frozenset[str] = self._named  # type: ignore[attr-defined]  # set by _fill
        return named.issuperset(names)

    def named_options(self) -> Iterator[tuple[ConfigOption[Any], object]]:
        """Return every option that this object sets, with its value."""
        yield from self.implies
        for each, option in _option_fields(type(self)):
            if self.names(each.name):
                yield option, getattr(self, each.name)


def chosen_in_code(configuration: Configuration, chosen: OptionFields) -> Configuration:
    """Return a copy of the settings in which code has set the options that this object sets, and no others."""
    for option, value in chosen.named_options():
        configuration = configuration.with_value(option, value)
    return configuration


def options_from(kind: type[S], configuration: Configuration) -> S:
    """Build an object of this class with every option from the settings. Raises ConfigError."""
    return kind(**{each.name: each.metadata[_READ](configuration.get(o)) for each, o in _option_fields(kind)})


def _option_fields(kind: type[OptionFields]) -> Iterator[tuple[Field[Any], ConfigOption[Any]]]:
    for each in fields(cast(Any, kind)):
        if _OPTION in each.metadata:
            yield each, each.metadata[_OPTION]
