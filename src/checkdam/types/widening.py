"""Which Arrow types hold all values of which others."""

from __future__ import annotations

import pyarrow as pa

_FRACTIONS = {"s": 0, "ms": 3, "us": 6, "ns": 6}  # digits of a second; Python's datetime has six


def is_narrower(new: pa.DataType, old: pa.DataType) -> bool:
    """Whether some value of `old`, of the same Python class, does not fit `new`."""
    is_a = pa.types
    if is_a.is_integer(new):
        lowest, highest = _bounds(old)
        return not _bounds(new)[0] <= lowest <= highest <= _bounds(new)[1]
    if is_a.is_floating(new):
        return bool(new.bit_width < old.bit_width)
    if is_a.is_decimal(new):
        return bool(new.scale < old.scale or new.precision - new.scale < old.precision - old.scale)
    if is_a.is_timestamp(new):
        return _FRACTIONS[new.unit] < _FRACTIONS[old.unit]
    return bool(is_a.is_fixed_size_binary(new))  # the old values are of another size, or of any


def _bounds(of: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(of):
        return 0, 2**of.bit_width - 1
    return -(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1) - 1
