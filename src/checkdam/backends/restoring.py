"""Restored state, whichever backend wrote it: may this job use it, and how its values are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from checkdam.backends import hashmap_reading
from checkdam.backends.contract import StoreOwner
from checkdam.backends.hashmap_reading import Entries
from checkdam.backends.state_file import StateInfo, state_info
from checkdam.errors import StateNotRestorableError
from checkdam.ids import OperatorUid
from checkdam.state.evolution import Compatibility, compare
from checkdam.state.serializers import Serializer, serializer, serializer_from_spec
from checkdam.state.snapshots import KeyedStateHandle
from checkdam.state.spec import StateSpec
from checkdam.storage.contract import Storage

_BEGIN_ANEW = "or give the state another name to begin anew"


def read_states(
    owner: StoreOwner, handle: KeyedStateHandle, storage: Storage, directory: str
) -> Iterator[tuple[StateInfo, Entries]]:
    """The states of a snapshot of any backend with their entries in the owner's key groups, as encoded bytes.

    Entries are to be read before the next state is asked for.

    Raises:
        CheckpointDamagedError: a file is gone, truncated or altered.
        FormatTooNewError: a file was written by a newer version.
        StateNotRestorableError: the key type or the max parallelism is another, or no known backend wrote it.
    """
    if handle.backend == "hashmap":
        read_handle, read_keys = hashmap_reading.read_handle, hashmap_reading.read_keys
    elif handle.backend == "rocksdb":
        from checkdam.backends.rocksdb import reading  # other jobs need not load its library

        read_handle, read_keys = reading.read_handle, reading.read_keys
    else:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" has state of backend "{handle.backend}", which this version does not know',
            hint="Restore with the version of checkdam that wrote it, or a newer one.",
        )
    keys = read_keys(handle, storage, directory)
    if keys is not None:
        check_keys(owner, *keys)
    return read_handle(handle, storage, directory, owner.key_groups, owner.work_directory)


def check_keys(owner: StoreOwner, key_type: str, max_parallelism: int) -> None:
    """Refuse restored state of other keys, or that is divided into another number of key groups."""
    own = serializer(owner.key_type).spec
    if key_type != own:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had keys of type {key_type} in the checkpoint and has {own} in the job',
            hint="Key the stream by the old type, or give the operator another uid to start it empty.",
        )
    if max_parallelism != owner.max_parallelism:
        raise StateNotRestorableError(
            f'operator "{owner.uid}" had max parallelism {max_parallelism} in the checkpoint and has'
            f" {owner.max_parallelism} in the job",
            hint=f"Set max parallelism to {max_parallelism}; it is fixed with the first checkpoint.",
        )


@dataclass(frozen=True)
class StateReading:
    """How the stored values of a restored state become values of the job's type."""

    serializer: Serializer
    convert: Callable[[Any], Any] | None
    is_renewed: bool
    """Whether the files tell of another type than the job has, so that no delta may build on them."""

    def values(self, packed: bytes | memoryview) -> list[Any]:
        """All values of a msgpack array."""
        decoded = self.serializer.decode(packed)
        return decoded if self.convert is None else list(map(self.convert, decoded))

    def value(self, encoded: bytes | memoryview) -> Any:
        decoded = self.serializer.decode_one(encoded)
        return decoded if self.convert is None else self.convert(decoded)


def reading_of(uid: OperatorUid, stored: StateInfo, spec: StateSpec) -> StateReading:
    """How to read a restored state for the one of the same name in the job.

    Raises:
        StateNotRestorableError: they do not go together; names operator, state, field and both types.
    """
    declared = state_info(spec)
    which = f'state "{spec.name}" of operator "{uid}"'
    if stored.kind != declared.kind:
        raise StateNotRestorableError(
            f"{which} was a {stored.kind} state in the checkpoint and is a {declared.kind} state in the job",
            hint=f"Declare it as a {stored.kind} state again, {_BEGIN_ANEW}.",
        )
    if stored.ttl != declared.ttl:
        had, has = ("a", "no") if stored.ttl else ("no", "a")
        remedy = "Give it a StateTtlConfig again (of any duration)" if stored.ttl else "Leave its ttl out"
        raise StateNotRestorableError(
            f"{which} had {had} time to live in the checkpoint and has {has} time to live in the job",
            hint=f"{remedy}, {_BEGIN_ANEW}; TTL cannot be turned on or off for state that exists.",
        )
    for what, was, becomes in (
        ("map keys", stored.map_key, declared.map_key),
        ("a namespace", stored.namespace, declared.namespace),
    ):
        if was != becomes:
            raise StateNotRestorableError(
                f"{which} had {what} of type {was or 'none'} in the checkpoint and has {becomes or 'none'} in the job",
                hint=f"Declare the old type, {_BEGIN_ANEW}; the types of keys cannot change.",
            )
    verdict = compare(stored.type, spec.value)
    if verdict.kind is Compatibility.INCOMPATIBLE:
        raise StateNotRestorableError(
            f"{which} cannot be restored: {verdict.reason}",
            hint=verdict.hint or f"Declare it with the old type, {_BEGIN_ANEW}.",
        )
    is_renewed = stored.type != declared.type
    if verdict.kind is Compatibility.AS_IS:
        return StateReading(serializer(spec.value), None, is_renewed)
    return StateReading(serializer_from_spec(stored.type), verdict.convert, is_renewed)
