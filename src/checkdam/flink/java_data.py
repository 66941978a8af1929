"""Java's `DataOutput` primitives: big-endian numbers and modified UTF-8, read from untrusted bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from checkdam.errors import CheckpointDamagedError

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_UTF_LIMIT = 0xFFFF
_DEPTH_LIMIT = 16  # handles nest three deep in files Flink writes


def encode_utf(text: str) -> bytes:
    """Encode modified UTF-8: NUL takes two bytes, a character outside the BMP two surrogates of three bytes each."""
    units = text.encode("utf-16-be", "surrogatepass")
    by_unit = "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
    return by_unit.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")


def decode_utf(raw: bytes) -> str:
    """Return the text that `encode_utf` encodes to exactly these bytes; raise ValueError if there is none."""
    by_unit = raw.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
    text = by_unit.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    if encode_utf(text) != raw:
        raise ValueError("not modified UTF-8")
    return text


class JavaReader:
    """Reads forward through bytes; whatever they hold, the only error is CheckpointDamagedError.

    Every length is compared with the bytes left before it is used, so damage costs neither memory nor time.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        self._position = 0
        self._depth = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def damaged(self, what: str) -> CheckpointDamagedError:
        return CheckpointDamagedError(
            f'"{self._path}" is damaged: {what} near byte {self._position} of {len(self._data)}',
            hint="Use another checkpoint of the job.",
        )

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise self.damaged(f"expected {length} bytes, found {self.left}")
        start = self._position
        self._position += length
        return self._data[start : self._position]

    def i8(self) -> int:
        return self.take(1)[0]

    def i32(self) -> int:
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def i64(self) -> int:
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def flag(self) -> bool:
        value = self.i8()
        if value > 1:
            raise self.damaged(f"found {value} instead of 0 or 1")
        return value == 1

    def utf(self) -> str:
        raw = self.take(int.from_bytes(self.take(2), "big"))
        try:
            return decode_utf(raw)
        except ValueError as error:
            raise self.damaged("a text that is not modified UTF-8") from error

    def blob(self) -> bytes:
        return self.take(self.i32())

    def count(self, item_bytes: int) -> int:
        """Read the number of items that follow, each of at least `item_bytes`."""
        number = self.i32()
        if not 0 <= number <= self.left // item_bytes:
            raise self.damaged(f"expected {number} items, found {self.left} bytes")
        return number

    def offsets(self) -> tuple[int, ...]:
        number = self.count(8)
        return struct.unpack(f">{number}q", self.take(8 * number))

    def expect_end(self) -> None:
        if self.left:
            raise self.damaged(f"{self.left} unexpected bytes")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Enter a nested handle; refuses a depth that only damaged files reach."""
        if self._depth == _DEPTH_LIMIT:
            raise self.damaged("handles are nested too deeply")
        self._depth += 1
        yield
        self._depth -= 1


class JavaWriter:
    """Writes what `JavaReader` reads."""

    def __init__(self) -> None:
        self._data = bytearray()

    def to_bytes(self) -> bytes:
        return bytes(self._data)

    def raw(self, data: bytes) -> None:
        self._data += data

    def i8(self, value: int) -> None:
        self._data.append(value)

    def i32(self, value: int) -> None:
        self._data += _I32.pack(value)

    def i64(self, value: int) -> None:
        self._data += _I64.pack(value)

    def flag(self, *, value: bool) -> None:
        self._data.append(int(value))

    def utf(self, text: str) -> None:
        raw = encode_utf(text)
        if len(raw) > _UTF_LIMIT:
            raise ValueError(f"a text of {len(raw)} bytes does not fit in {_UTF_LIMIT}: {text[:40]}…")
        self._data += len(raw).to_bytes(2, "big") + raw

    def blob(self, data: bytes) -> None:
        self.i32(len(data))
        self._data += data

    def offsets(self, offsets: tuple[int, ...]) -> None:
        self.i32(len(offsets))
        self._data += struct.pack(f">{len(offsets)}q", *offsets)
