from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checkdam import config
from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.runtime.slot.operator_setup import local_directory


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("flink-conf.yaml", "state.backend.rocksdb.localdir: /a, /b\n"),
        ("flink-conf.yaml", "state.backend.rocksdb.localdir: /a:/b\n"),
        ("config.yaml", "state.backend.rocksdb.localdir: [/a, /b]\n"),
    ],
)
def test_slots_take_turns_among_several_local_directories(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    named = Configuration.load(tmp_path).get(config.ROCKSDB_LOCAL_DIR)
    slots = [cast(Any, SimpleNamespace(local_directory=named, subtask=n)) for n in range(3)]

    assert list(map(local_directory, slots)) == [Path("/a"), Path("/b"), Path("/a")]


def test_no_directory_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a directory, or several"):
        Configuration().with_value(config.ROCKSDB_LOCAL_DIR, ())
