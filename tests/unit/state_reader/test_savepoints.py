"""Savepoints of a running job, read wherever they are moved to."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.every_state import EveryState

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.checkpoint.settings import CheckpointConfig
from checkdam.errors import CheckpointDamagedError
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.state_reader import Savepoint
from checkdam.testing.gate import Gate

EPOCHS = [[("a", 1), ("b", 2), ("rule", 3)], [("a", 4), ("c", 5), ("d", 7)]]
BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("32 MB")}


def _taken(backend: str, format: SavepointFormat, directory: Path) -> Savepoint:
    """A savepoint of a job with every kind of state, moved away from where it was taken."""
    gate = Gate()
    job = EveryState(EPOCHS, BACKENDS[backend]).job(until=gate, checkpoints=CheckpointConfig(timedelta(days=1)))
    control = job.start()
    job.heard.wait_for_epoch(len(EPOCHS))
    taken = control.trigger_savepoint(str(directory / "taken"), format).result(60)
    gate.open()
    job.join()
    shutil.move(taken, directory / "moved")
    return Savepoint.load(str(directory / "moved"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("format", SavepointFormat)
def test_a_savepoint_reads_alike_whichever_backend_and_format(
    backend: str, format: SavepointFormat, tmp_path: Path
) -> None:
    savepoint = _taken(backend, format, tmp_path)

    assert savepoint.epoch == 2
    assert dict(savepoint.keyed_state("everything", "numbers")) == {"a": [1, 4], "b": [2], "c": [5], "d": [7]}
    assert savepoint.keyed_state("everything", "by number").get("a") == {1: 2}
    assert savepoint.timers("everything").get("d") == [("event time", 12)]
    assert list(savepoint.broadcast_state("everything", "rules")) == [(3, "rule 3")]
    assert savepoint.operator_state("buffer", "records").count() == 6


def test_a_savepoint_that_lost_a_file_says_which(tmp_path: Path) -> None:
    savepoint = _taken("hashmap", SavepointFormat.CANONICAL, tmp_path)
    gone = next(path for path in sorted(tmp_path.glob("moved/*")) if path.name != "_metadata")
    gone.unlink()

    with pytest.raises(CheckpointDamagedError, match=gone.name):
        [savepoint.states(operator.uid) for operator in savepoint.operators]
