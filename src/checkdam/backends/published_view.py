"""The common part of all published views: encoded entries, and which of them are visible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from checkdam.backends.contract import Prune
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.state.spec import StateSpec
from checkdam.state.stored import as_of_now
from checkdam.state.ttl import TtlTime, TtlVisibility
from checkdam.types.serializers import Serializer, serializer
from checkdam.types.text_filter import TextFilter
from checkdam.types.type_info import TypeInfo

MOST_ENTRIES = 10_000
"""A page of maps ends once it holds this many map entries."""

_pack = msgspec.msgpack.Encoder().encode


def packed_pairs(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return an array of pairs built from encoded parts."""
    return _pack([(msgspec.Raw(key), msgspec.Raw(value)) for key, value in entries])


def unknown_state(uid: str, name: str, known: Iterable[str]) -> StateAccessError:
    names = ", ".join(f'"{each}"' for each in sorted(known))
    return StateAccessError(
        f'operator "{uid}" has no keyed state "{name}"',
        hint=f"It has {names}." if names else "It has not asked for any keyed state yet.",
    )


def not_asked_for(uid: str, name: str) -> StateNotReadyError:
    return StateNotReadyError(
        f'state "{name}" of operator "{uid}" is restored, but the function has not asked for it yet',
        hint="It can be read here once the function has asked for it; until then read it from the checkpoint.",
    )


def unreadable(uid: str, name: str, failure: CheckdamError) -> StateAccessError:
    return StateAccessError(f'state "{name}" of operator "{uid}" cannot be read: {failure.message}', hint=failure.hint)


class StateCodec:
    """The serializers of one state, and the expiry rule for its readers."""

    def __init__(self, spec: StateSpec, key_type: TypeInfo, prune: Prune | None) -> None:
        self.spec = spec
        self._key_type = key_type
        self.holders = serializer(spec.holder_key(key_type))
        self.values: Serializer = serializer(spec.value)
        self.map_keys: Serializer | None = None if spec.map_key is None else serializer(spec.map_key)
        hides = spec.ttl is not None and spec.ttl.visibility is TtlVisibility.NEVER_RETURN_EXPIRED
        self._prune = prune if hides else None
        self._by_event_time = spec.ttl is not None and spec.ttl.time is TtlTime.EVENT_TIME

    def prune_of_epoch(self) -> Prune | None:
        """Return the prune for an epoch that ends now: by its final watermark, or by the clock."""
        return as_of_now(self._prune) if self._prune is not None and self._by_event_time else self._prune

    def filter_of(self, text: str) -> Callable[[Any], bool]:
        """Return the filter of holders by the text of their keys."""
        matches = TextFilter(text, self._key_type)
        return matches if self.spec.namespace is None else lambda holder: matches(holder[0])

    def holder(self, encoded: bytes) -> Any:
        return self.holders.decode_one(encoded)

    def visible(self, stored: bytes, prune: Prune | None) -> bytes | None:
        """Return an encoded value without expired elements; None if nothing is left."""
        if prune is None:
            return stored
        value = self.values.decode_one(stored)
        fresh = prune(value)
        return stored if fresh is value else None if fresh is None else self.values.encode_one(fresh)
