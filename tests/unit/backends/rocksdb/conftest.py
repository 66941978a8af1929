from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from checkdam.backends import RocksDBStateBackend, StoreOwner
from checkdam.backends.rocksdb.rocksdb_store import RocksDBStore
from checkdam.ids import Attempt, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle
from checkdam.storage import Storage, open_storage
from checkdam.types.type_info import type_info

Open = Callable[..., RocksDBStore]

_ALL = KeyGroupRange(0, 15)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where stores put their working files."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "checkpoints"))


@pytest.fixture
def open_store(work: Path, storage: Storage) -> Iterator[Open]:
    stores: list[RocksDBStore] = []

    def opened(
        handles: Sequence[KeyedStateHandle] = (),
        key_groups: KeyGroupRange = _ALL,
        memory: str = "16 MB",
    ) -> RocksDBStore:
        owner = StoreOwner(
            OperatorUid("op"),
            SubtaskIndex(0),
            Attempt("a1"),
            key_groups,
            16,
            type_info(str),
            lambda: Path(tempfile.mkdtemp(dir=work)),
        )
        stores.append(RocksDBStateBackend(memory).open(owner, handles, storage, claim=True))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()
