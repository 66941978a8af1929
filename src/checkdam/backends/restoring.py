"""Restored state of any backend: whether this job can use it, and how its values are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from checkdam.backends.contract import Prune, StoreOwner
from checkdam.backends.snapshot_contents import Entries, describe_keys, read_entries
from checkdam.backends.state_file import StateInfo, state_info
from checkdam.errors import StateNotRestorableError
from checkdam.ids import OperatorUid
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.state.spec import StateSpec
from checkdam.state.stored import shortened
from checkdam.state.ttl import TtlTime
from checkdam.storage.contract import Storage
from checkdam.types.evolution import Compatibility, Verdict, compare, compare_types, restoring_value
from checkdam.types.serializers import Serializer, serializer, serializer_from_spec
from checkdam.types.type_info import Kind, TypeInfo, list_of
from checkdam.types.type_text import type_from_text

_BEGIN_ANEW = "or rename the state to start it empty"
_BEGIN_WINDOWS_ANEW = "or give the operator another uid to start its windows empty"


def read_states(owner: StoreOwner, handle: KeyedStateHandle, storage: Storage) -> Iterator[tuple[StateInfo, Entries]]:
    """Read the states of a snapshot of any backend with their entries in the owner's key groups, as encoded bytes.

    Consume the entries of a state before asking for the next state.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: the key type or the max parallelism is another, or no known backend wrote it.
    """
    keys = describe_keys(handle, storage)
    if keys is not None:
        check_keys(owner, *keys)
    return read_entries(handle, storage, owner.key_groups, owner.work_directory)


def check_keys(owner: StoreOwner, key_type: str, max_parallelism: int) -> None:
    """Refuse restored state with another key type or another number of key groups."""
    other = other_keys(key_type, owner.key_type)
    if other is not None:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had keys of type {other[0]} in the checkpoint and has {other[1]} in the job',
            hint="Key the stream by the old type, or give the operator another uid to start it empty.",
        )
    if max_parallelism != owner.max_parallelism:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had max parallelism {max_parallelism} in the checkpoint and has'
            f" {owner.max_parallelism} in the job",
            hint=f"Set max parallelism to {max_parallelism}; it is fixed with the first checkpoint.",
        )


def other_keys(stored: str, of: TypeInfo | None) -> tuple[str, str] | None:
    """Return the names of the stored and of the job's key type if these differ; a class that only has another name
    does not. "" and None mean no keys.
    """
    was = type_from_text(stored).name if stored else "none"
    if of is None or not stored:
        return None if of is None and not stored else (was, "none" if of is None else of.name)
    verdict = compare(stored, of)
    if verdict.kind is Compatibility.AS_IS:
        return None
    return was, of.name if of.name != was else f"another {was} ({verdict.reason})"


@dataclass(frozen=True)
class StateReading:
    """How the stored values of a restored state become values of the job's type."""

    which: str
    """The state and its operator, for errors."""
    serializer: Serializer
    convert: Callable[[Any], Any] | None
    is_renewed: bool
    """Whether the files have another type or time to live than the job, so that no delta may build on them."""
    lived_shorter_by: int = 0
    """How many milliseconds longer elements live in the job than before the checkpoint."""

    def values(self, packed: bytes | memoryview) -> list[Any]:
        """Decode all values of a msgpack array."""
        with restoring_value(self.which):
            decoded = self.serializer.decode(packed)
            return decoded if self.convert is None else list(map(self.convert, decoded))

    def prune(self, prune: Prune) -> Prune:
        """Return the prune for restored values: elements that had expired stay gone, even if the TTL is longer now."""
        return shortened(prune, self.lived_shorter_by) if self.lived_shorter_by else prune


def reading_of(uid: OperatorUid, stored: StateInfo, spec: StateSpec) -> StateReading:
    """Return how to read a restored state for the job's state of the same name.

    Raises:
        StateNotRestorableError: they are incompatible; names operator, state, field and both types.
    """
    declared = state_info(spec)
    which = f'state "{spec.name}" of operator "{uid}"'
    begin_anew = _BEGIN_ANEW if spec.namespace is None else _BEGIN_WINDOWS_ANEW
    if stored.kind != declared.kind:
        raise StateNotRestorableError(
            f"{which} was a {stored.kind} state in the checkpoint and is a {declared.kind} state in the job",
            hint=f"Declare it as a {stored.kind} state again, {begin_anew}.",
        )
    if stored.ttl != declared.ttl:
        had, has = ("a", "no") if stored.ttl else ("no", "a")
        remedy = "Give it a StateTtlConfig again (of any duration)" if stored.ttl else "Leave its ttl out"
        raise StateNotRestorableError(
            f"{which} had {had} time to live in the checkpoint and has {has} time to live in the job",
            hint=f"{remedy}, {begin_anew}; TTL cannot be turned on or off for state that exists.",
        )
    if stored.ttl_in_event_time != declared.ttl_in_event_time:
        of_old, of_new = _ttl_time(stored), _ttl_time(declared)
        raise StateNotRestorableError(
            f"{which} had a time to live in {of_old.value} in the checkpoint and has one in {of_new.value} in the job",
            hint=f"Set time={of_old} in its StateTtlConfig, {begin_anew}; the times stored are of the other clock.",
        )
    for what, was, of in (
        ("map keys", stored.map_key, spec.map_key),
        ("windows", stored.namespace, spec.namespace),
    ):
        other = other_keys(was, of)
        if other is not None:
            raise StateNotRestorableError(
                f"{which} had {what} of type {other[0]} in the checkpoint and has {other[1]} in the job",
                hint=f"Declare the old type, {begin_anew}; the types of keys and windows cannot change.",
            )
    verdict = verdict_of(stored, spec)
    if verdict.kind is Compatibility.INCOMPATIBLE:
        raise StateNotRestorableError(
            f"{which} cannot be restored: {verdict.reason}",
            hint=verdict.hint or f"Declare it with the old type, {begin_anew}.",
        )
    is_renewed = stored != declared
    lived = stored.ttl_milliseconds or declared.ttl_milliseconds
    shorter = max(0, declared.ttl_milliseconds - lived)
    if verdict.kind is Compatibility.AS_IS:
        return StateReading(which, serializer(spec.value), None, is_renewed, shorter)
    return StateReading(which, serializer_from_spec(stored.type), verdict.convert, is_renewed, shorter)


def verdict_of(stored: StateInfo, spec: StateSpec) -> Verdict:
    """Compare the value types of a restored state and the job's; describes them as the user declared them, without
    touch times.
    """
    verdict = compare(stored.type, spec.value)
    if not verdict.differences or spec.ttl is None or not stored.ttl:
        return verdict
    as_declared = compare_types(untimed(type_from_text(stored.type)), untimed(spec.value))
    return replace(verdict, differences=as_declared.differences or verdict.differences)


def untimed(of: TypeInfo) -> TypeInfo:
    """Return a type without the touch time that each element of a state with TTL carries."""
    (_, first), *_ = of.fields
    return list_of(untimed(first), of.hint) if of.kind is Kind.LIST else first


def agreed(uid: OperatorUid, one: StateInfo, other: StateInfo) -> StateInfo:
    """Combine the descriptions of a state in two files of a checkpoint; takes the longer duration, so that nothing
    live is lost.

    Raises:
        StateNotRestorableError: they contradict each other.
    """
    if one != msgspec.structs.replace(other, ttl_milliseconds=one.ttl_milliseconds):
        raise StateNotRestorableError(
            f'state "{one.name}" of operator "{uid}" is a {one.kind} of type {one.type} in one file of the checkpoint'
            f" and a {other.kind} of type {other.type} in another",
            hint="Some subtasks have migrated the state and others have not asked for it yet: ask for it in open(), "
            "restore with the parallelism of the checkpoint, and change the parallelism afterwards.",
        )
    return max(one, other, key=lambda info: info.ttl_milliseconds)


def _ttl_time(info: StateInfo) -> TtlTime:
    return TtlTime.EVENT_TIME if info.ttl_in_event_time else TtlTime.PROCESSING_TIME
