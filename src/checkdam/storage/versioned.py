"""Small JSON files that state their version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from checkdam.errors import FormatTooNewError
from checkdam.storage.contract import Storage

T = TypeVar("T")


class _Version(msgspec.Struct, frozen=True):
    version: int


_decode_version = msgspec.json.Decoder(_Version).decode


def read_versioned(storage: Storage, path: str, decode: Callable[[bytes], T], newest: int) -> T:
    """Read and decode a file whose field `version` is at most `newest`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged.
        FormatTooNewError: a newer version wrote it.
    """
    data = storage.read(path)
    try:
        version = _decode_version(data).version
        if version > newest:
            raise FormatTooNewError(
                f'"{storage.uri}/{path}" has format {version}; this Checkdam reads up to {newest}',
                hint="Run the job with the Checkdam that wrote it, or a newer one.",
            )
        return decode(data)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {error}") from error
