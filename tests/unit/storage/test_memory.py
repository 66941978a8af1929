"""Storage in memory: one tree per name in one process, small files only, and no promise to other processes."""

from __future__ import annotations

import pickle

import pytest

from checkdam.errors import ConfigError, StorageError
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import (
    DEFAULT_MAX_STATE_SIZE,
    MemoryStorage,
    set_max_state_size,
)


def test_a_name_is_the_same_tree_wherever_it_is_opened() -> None:
    open_storage("memory://same-tree").write("job/chk-1/_metadata", b"1")

    below = open_storage("memory://same-tree/job/chk-1")

    assert below.read("_metadata") == b"1"
    assert below.uri == "memory://same-tree/job/chk-1"
    assert open_storage("memory://other-tree").list("") == []


def test_a_storage_pickles_to_itself() -> None:
    unnamed = MemoryStorage()
    named = open_storage("memory://pickled")

    assert pickle.loads(pickle.dumps(unnamed)) is unnamed
    assert pickle.loads(pickle.dumps(named)) is named
    assert open_storage(unnamed.uri) is unnamed


def test_a_file_above_the_limit_is_refused_with_the_limit_and_the_setting() -> None:
    storage = open_storage("memory://limited")
    storage.write("fits", bytes(DEFAULT_MAX_STATE_SIZE))

    with pytest.raises(StorageError, match=r"at most 5,242,880 .*memory-storage\.max-state-size"):
        storage.write("too large", bytes(DEFAULT_MAX_STATE_SIZE + 1))

    assert [status.path for status in storage.list("")] == ["fits"]


def test_a_stream_is_refused_as_soon_as_it_is_too_long() -> None:
    storage = open_storage("memory://limited-stream")
    set_max_state_size("memory://limited-stream/job", 10)
    stream = storage.open_output("f")
    stream.write(b"12345")

    with pytest.raises(StorageError, match="at most 10"):
        stream.write(b"678901")


def test_a_storage_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        open_storage("memory:///job")
