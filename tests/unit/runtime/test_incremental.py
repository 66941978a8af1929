"""`state.backend.incremental: false`: every checkpoint is full, on both backends and under both spellings."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.word_count import WordCount

from checkdam import CheckpointConfig, CheckpointRetention
from checkdam.config import Configuration

WORDS = [[f"word {n}" for n in range(500)], ["word 1"], ["word 2"], ["word 3"]]
KEPT = CheckpointConfig(interval=timedelta(0), num_retained=10, retention=CheckpointRetention.RETAIN_ON_CANCELLATION)


def files_of_checkpoints(**settings: str) -> list[set[str]]:
    """The state files of each checkpoint of a job whose epochs change little."""
    job = WordCount(WORDS).job(checkpoints=KEPT, settings=Configuration.load(None, settings))
    job.run()
    store = job._store()
    return [
        {
            file.path
            for entry in store.load(each).operators
            for handle in entry.subtasks.values()
            for file in handle.files
        }
        for each in store.completed()
    ]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("key", ["state.backend.incremental", "execution.checkpointing.incremental"])
def test_no_checkpoint_needs_a_file_of_another(backend: str, key: str) -> None:
    full = files_of_checkpoints(**{"state.backend": backend, key: "false"})

    assert len(full) >= len(WORDS)
    assert len(set().union(*full)) == sum(map(len, full))
    incremental = files_of_checkpoints(**{"state.backend": backend, key: "true"})
    assert len(set().union(*incremental)) < sum(map(len, incremental))
