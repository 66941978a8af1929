"""The messages between driver and slots about live state: msgpack, since a query must cost next to nothing."""

from __future__ import annotations

import msgspec

from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError


class GetKeys(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Query the content of these keys, all owned by this slot."""

    uid: str
    name: str
    keys: list[bytes]
    map_key: bytes | None = None


class GetPage(msgspec.Struct, frozen=True, array_like=True, tag=2):
    uid: str
    name: str
    after: bytes
    limit: int


class ListStates(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Query which states exist."""


class GetWindows(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Query all windows of these keys, all owned by this slot."""

    uid: str
    name: str
    keys: list[bytes]
    map_key: bytes | None = None


Ask = GetKeys | GetPage | ListStates | GetWindows


class FoundKeys(msgspec.Struct, frozen=True, array_like=True, tag=1):
    epoch: int
    values: list[bytes | None]


class FoundPage(msgspec.Struct, frozen=True, array_like=True, tag=2):
    epoch: int
    entries: list[tuple[bytes, bytes]]
    after: bytes | None


class StateFacts(msgspec.Struct, frozen=True, array_like=True):
    """One state of one operator in one slot; types as their durable text, so that no code of the job is needed."""

    uid: str
    name: str
    kind: str
    value_type: str
    map_key_type: str | None
    window_type: str | None
    has_ttl: bool
    entries: int


class FoundStates(msgspec.Struct, frozen=True, array_like=True, tag=3):
    epoch: int
    states: list[StateFacts]
    not_asked_for: list[tuple[str, str]] = []
    """Uid and name of restored states that no function has declared yet in this slot."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The query cannot be answered: because of its content, or not now."""

    is_wrong: bool
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: CheckdamError) -> Refused:
        return cls(not isinstance(error, StateNotReadyError), error.message, error.hint)

    def error(self) -> CheckdamError:
        return (StateAccessError if self.is_wrong else StateNotReadyError)(self.message, hint=self.hint)


class FoundWindows(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The windows of each key with their content."""

    epoch: int
    values: list[list[tuple[bytes, bytes]]]


Answer = FoundKeys | FoundPage | FoundStates | Refused | FoundWindows

pack = msgspec.msgpack.Encoder().encode
unpack_asks = msgspec.msgpack.Decoder(list[Ask]).decode
unpack_answers = msgspec.msgpack.Decoder(list[Answer]).decode
