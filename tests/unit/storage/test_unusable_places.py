"""Places where nothing can be kept are refused in words, whatever the operating system calls it."""

from __future__ import annotations

import pytest

from checkdam.errors import ConfigError, StorageError
from checkdam.storage.filesystem import open_storage


@pytest.mark.parametrize("uri", ["s3://", "a\0b", "nosuch://place/below"])
def test_what_names_no_place_is_a_wrong_setting(uri: str) -> None:
    with pytest.raises(ConfigError):
        open_storage(uri)


@pytest.mark.parametrize("path", ["/proc/nowhere", "file:///proc/self/nowhere/below"])
def test_a_place_where_no_directory_can_be_made_is_not_writable(path: str) -> None:
    storage = open_storage(path)

    with pytest.raises(StorageError, match="nowhere"):
        storage.check_writable()
