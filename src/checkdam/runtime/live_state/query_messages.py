"""The messages between driver and slots about live state: msgpack, since a query must cost next to nothing."""

from __future__ import annotations

import msgspec

from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.state.state_count import StateCount


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


class FindKeys(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Query a page of the keys whose JSON contains a text."""

    uid: str
    name: str
    after: bytes
    limit: int
    text: str


class GetElements(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Query the elements of an operator state from a place on; with a text, those whose JSON contains it."""

    uid: str
    name: str
    start: int
    limit: int
    text: str | None = None


class GetTimers(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Query the next timers of an operator; with a text, those of keys whose JSON contains it."""

    uid: str
    limit: int
    text: str | None = None


Ask = GetKeys | GetPage | ListStates | GetWindows | FindKeys | GetElements | GetTimers


class FoundKeys(msgspec.Struct, frozen=True, array_like=True, tag=1):
    epoch: int
    values: list[bytes | None]


class FoundPage(msgspec.Struct, frozen=True, array_like=True, tag=2):
    epoch: int
    entries: list[tuple[bytes, bytes]]
    after: bytes | None
    scanned: int = 0
    """How many keys a filter has looked at."""


class StateFacts(msgspec.Struct, frozen=True, array_like=True):
    """One state of one operator in one slot; types as their durable text, so that no code of the job is needed."""

    uid: str
    name: str
    kind: str
    value_type: str
    map_key_type: str | None
    window_type: str | None
    has_ttl: bool
    held: StateCount


class OperatorStateFacts(msgspec.Struct, frozen=True, array_like=True):
    """One operator state of one operator in one slot; `mode` is a Redistribution."""

    uid: str
    name: str
    mode: int
    element_type: str
    elements: int


class TimerFacts(msgspec.Struct, frozen=True, array_like=True):
    """The timers of one operator and time domain in one slot."""

    uid: str
    domain: str
    count: int
    next: int | None


class FoundStates(msgspec.Struct, frozen=True, array_like=True, tag=3):
    epoch: int
    states: list[StateFacts]
    not_asked_for: list[tuple[str, str]] = []
    """Uid and name of restored states that no function has declared yet in this slot."""
    operator_states: list[OperatorStateFacts] = []
    timers: list[TimerFacts] = []


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


class FoundElements(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A page of the elements of an operator state in one slot, and the next place; None at the end."""

    epoch: int
    mode: int | None
    """A Redistribution; None if the function has not asked for the state in this slot."""
    element_type: str
    elements: list[bytes]
    next: int | None
    scanned: int


class Timer(msgspec.Struct, frozen=True, array_like=True):
    domain: str
    time: int
    key: bytes
    window: bytes | None


class FoundTimers(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The next timers of an operator in one slot, the earliest of each domain first."""

    epoch: int
    timers: list[Timer]
    window_type: str | None
    count: int
    """How many there are in all."""


Answer = FoundKeys | FoundPage | FoundStates | Refused | FoundWindows | FoundElements | FoundTimers

pack = msgspec.msgpack.Encoder().encode
unpack_asks = msgspec.msgpack.Decoder(list[Ask]).decode
unpack_answers = msgspec.msgpack.Decoder(list[Answer]).decode
