"""The syntax of setting values: durations, memory sizes, numbers, names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from checkdam.errors import ConfigError

T = TypeVar("T")

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµμ]*)\s*", re.IGNORECASE)
_ISO_DURATION = re.compile(r"\s*P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\s*", re.IGNORECASE)
_DURATION_UNITS = {
    "": 1e-3,  # as in Flink, a bare number means milliseconds
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("µs", "μs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
}
_MEMORY_UNITS = {  # binary, as in Flink: 1 kb is 1024 bytes
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibytes"), 1 << 40),
}


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """The syntax of a value: `parse` takes text or a Python value and raises ValueError if it is invalid."""

    expected: str
    example: str
    parse: Callable[[object], T]


def _scaled(value: object, units: Mapping[str, float]) -> float:
    match = _NUMBER.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(value)
    unit = units.get(match[2].lower())
    if unit is None:
        raise ValueError(value)
    return float(match[1]) * unit


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value
    iso = _ISO_DURATION.fullmatch(str(value))
    try:
        if iso is not None and any(iso.groups()):
            days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return timedelta(seconds=_scaled(value, _DURATION_UNITS))
    except OverflowError as error:
        raise ValueError(value) from error


def _boolean(value: object) -> bool:
    return ("false", "true").index(str(value).strip().lower()) == 1


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value.strip()


def _directories(value: object) -> str:
    named = list(value) if isinstance(value, tuple | list) else re.split("[,:]", _text(value))
    return ",".join(map(_text, named)) or _text("")


def _places(value: object) -> str:
    named = list(value) if isinstance(value, tuple | list) else re.split("[,;]", _text(value))
    return ",".join(map(_text, named)) or _text("")


DURATION = ValueType("a duration: a number and a unit (ms, s, min, h, d)", "60s", _duration)
MEMORY = ValueType(
    "a memory size: a number and a unit (b, kb, mb, gb)", "256 mb", lambda v: int(_scaled(v, _MEMORY_UNITS))
)
BOOLEAN = ValueType("true or false", "true", _boolean)
TEXT = ValueType("text", "name", _text)
DIRECTORIES = ValueType("a directory, or several with commas between them", "/data/a,/data/b", _directories)

PLACES = ValueType(
    "a directory or URI, or several with commas between them", "/data/savepoints,s3://bucket/savepoints", _places
)


def integer(minimum: int, maximum: float = 2**31 - 1, *, example: int = 3) -> ValueType[int]:
    return _bounded(int, "a whole number", minimum, maximum, example=f"{max(minimum, example)}")


def number(minimum: float, maximum: float = sys.float_info.max) -> ValueType[float]:
    return _bounded(float, "a number", minimum, maximum, example=f"{minimum + 0.5:g}")


def _bounded(kind: Callable[[str], T], what: str, minimum: float, maximum: float, *, example: str) -> ValueType[T]:
    def parse(value: object) -> T:
        parsed: Any = kind(str(value))
        if not minimum <= parsed <= maximum:
            raise ValueError(value)
        return parsed  # type: ignore[no-any-return]  # a number type T, which has no bound that compares

    upper = f" and at most {maximum:g}" if maximum < 2**31 - 1 else ""
    return ValueType(f"{what} of at least {minimum:g}{upper}", example, parse)


def choice(*names: str, synonyms: Mapping[str, str] | None = None) -> ValueType[str]:
    """Return a type for one of `names`, in any case and with "-" or "_"; a synonym becomes the name it stands for."""

    def fold(name: object) -> str:
        return str(getattr(name, "name", name)).strip().lower().replace("-", "_")

    spellings = {fold(name): name for name in names} | {fold(old): new for old, new in (synonyms or {}).items()}

    def parse(value: object) -> str:
        folded = fold(value)
        if folded not in spellings:
            raise ValueError(value)
        return spellings[folded]

    return ValueType(f"one of {', '.join(names)}", names[0], parse)


def parse_memory_size(value: object) -> int:
    """Read "256 mb", "1g" or a bare number of bytes, as bytes; units are binary. Raises ConfigError."""
    return parse_as(MEMORY, "memory size", value)


def parse_as(kind: ValueType[T], name: str, value: object, *, where: str = "") -> T:
    """Parse a value. Raises ConfigError naming what it is for, the value and what is expected."""
    try:
        return kind.parse(value)
    except ValueError:
        raise ConfigError(
            f'{name} is "{value}"{where}, which is not {kind.expected}', hint=f'Write for example "{kind.example}".'
        ) from None
