"""The asynchronous part of a RocksDB snapshot: copies the new tables out of a directory of linked tables."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkdam.backends.abortable_snapshot import AbortableSnapshot
from checkdam.backends.contract import StoreOwner
from checkdam.backends.rocksdb.canonical_file import write_canonical
from checkdam.backends.rocksdb.snapshot_files import INFO_NAME, TABLE_SUFFIX, SnapshotInfo, copy_out, pack_info
from checkdam.backends.state_file import StateInfo
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.storage.contract import Storage
from checkdam.types.type_text import text_of

_NOT_NEEDED = ("OPTIONS-", "LOG", "LOCK", "IDENTITY")


@dataclass(frozen=True, slots=True)
class DurableTable:
    """A table that is already durable, with its checksum, and the first and last key group of its keys if known."""

    file: StateFile
    checksum: int
    key_groups: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class WrittenInfo:
    """The file of a completed checkpoint that describes its states, and its content."""

    file: StateFile
    states: tuple[StateInfo, ...]


class RocksDBSnapshot(AbortableSnapshot):
    """One snapshot. `builds_on` are the tables of the last completed checkpoint, by their local names, `info` its file
    that describes the states, if known.
    """

    def __init__(
        self,
        owner: StoreOwner,
        checkpoint_id: CheckpointId,
        *,
        local: Path,
        states: list[StateInfo],
        builds_on: Mapping[str, DurableTable],
        key_groups: Mapping[str, tuple[int, int]],
        info: WrittenInfo | None = None,
    ) -> None:
        super().__init__(owner, checkpoint_id)
        self.tables: dict[str, DurableTable] | None = None  # once written: the tables of this snapshot
        self.info = info  # once written: that of this snapshot
        self._local = local
        self._states = states
        self._builds_on = builds_on
        self._key_groups = key_groups
        self._is_being_written = False

    def _release(self) -> None:
        if not self._is_being_written:
            shutil.rmtree(self._local, ignore_errors=True)

    def write(self, storage: Storage, directory: str) -> KeyedStateHandle:
        with self._being_written(storage) as attempted:
            tables, files = self._copy_files(storage, f"{directory}/{self._file_stem}", self._builds_on, attempted)
            with self._lock:
                self._refuse_if_aborted()
                self.tables = tables
        return KeyedStateHandle(self._owner.key_groups, files, "rocksdb")

    def write_whole(self, target: Storage, source: Storage | None, *, canonical: bool) -> KeyedStateHandle:
        del source  # the local directory has all tables, including those of earlier checkpoints
        with self._being_written(target) as attempted:
            if canonical:
                files = self._write_canonical(target, attempted)
            else:
                _, files = self._copy_files(target, self._file_stem, {}, attempted)
            with self._lock:
                self._refuse_if_aborted()
        return KeyedStateHandle(self._owner.key_groups, files, "hashmap" if canonical else "rocksdb")

    @contextlib.contextmanager
    def _being_written(self, storage: Storage) -> Iterator[list[str]]:
        """Keep the local files during the write; if it fails, remove the attempted files."""
        attempted: list[str] = []
        self._new_files.clear()
        try:
            with self._lock:
                self._refuse_if_aborted()
                self._is_being_written = True
            with self._removed_on_failure(storage, attempted):
                try:
                    yield attempted
                except FileNotFoundError:
                    self._refuse_if_aborted()  # the store was closed meanwhile, and its files are gone
                    raise
        finally:
            with self._lock:
                self._is_being_written = False
                self._is_aborted = self._is_aborted or self.tables is None
                self._release()

    def _write_canonical(self, target: Storage, attempted: list[str]) -> tuple[StateFile, ...]:
        attempted.append(self._file_stem)
        info = self._file_info("base", self._states)
        groups, check = self._owner.key_groups, self._refuse_if_aborted
        written = write_canonical(self._local, info, groups, target, self._file_stem, check=check)
        self._new_files.append(written)
        return (written,)

    def _copy_files(
        self, storage: Storage, stem: str, builds_on: Mapping[str, DurableTable], attempted: list[str]
    ) -> tuple[dict[str, DurableTable], tuple[StateFile, ...]]:
        tables: dict[str, DurableTable] = {}
        others: dict[str, bytes] = {}
        for local in sorted(self._local.iterdir()):
            self._refuse_if_aborted()
            size = local.stat().st_size
            known = builds_on.get(local.name)
            if known is not None and known.file.size == size:
                tables[local.name] = known
            elif local.suffix == TABLE_SUFFIX:
                attempted.append(f"{stem}-{local.name}")
                tables[local.name] = DurableTable(
                    *copy_out(local, storage, attempted[-1]), self._key_groups.get(local.name)
                )
                self._new_files.append(tables[local.name].file)
            elif size and not local.name.startswith(_NOT_NEEDED):
                others[local.name] = local.read_bytes()
        if not tables:
            return {}, ()  # nothing is stored, so there is nothing to describe
        files = tuple(table.file for table in tables.values())
        before, states = self.info, tuple(self._states)
        if before is not None and before.states == states and tables == builds_on:
            return tables, (*files, before.file)  # nothing has changed
        attempted.append(f"{stem}-states")
        info = pack_info(self._info(tables, others))
        storage.write(attempted[-1], info)
        self._new_files.append(StateFile(attempted[-1], len(info), INFO_NAME))
        self.info = WrittenInfo(self._new_files[-1], states)
        return tables, (*files, self._new_files[-1])

    def _info(self, tables: Mapping[str, DurableTable], others: dict[str, bytes]) -> SnapshotInfo:
        return SnapshotInfo(
            uid=self._owner.uid,
            subtask=self._owner.subtask,
            checkpoint_id=self._checkpoint_id,
            max_parallelism=self._owner.max_parallelism,
            key_type=text_of(self._owner.key_type),
            states=self._states,
            tables={name: table.checksum for name, table in tables.items()},
            others=others,
            key_groups={name: table.key_groups for name, table in tables.items() if table.key_groups is not None},
        )
