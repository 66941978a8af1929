"""Snapshots of a job with every kind of state, read without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.every_state import PADDING, EveryState

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.errors import CheckpointNotFoundError, StateAccessError
from checkdam.state_reader import Savepoint
from checkdam.state_reader.diffing import diff
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob

pytestmark = pytest.mark.slow

EPOCHS = [[("a", 1), ("b", 2), ("rule", 3)], [("a", 4), ("c", 5), ("d", 7)], [("b", 8)]]
BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("32 MB")}


@pytest.fixture(params=BACKENDS)
def job(request: pytest.FixtureRequest) -> Iterator[LocalJob]:
    """A job that ran, and kept all of its checkpoints."""
    every_state = EveryState(EPOCHS, BACKENDS[request.param])
    job = every_state.job(checkpoints=replace(EVERY_EPOCH, num_retained=5))
    job.run()
    yield job
    del every_state  # its storage is mounted for as long as somebody holds it


def _at(job: LocalJob, number: int) -> Savepoint:
    return Savepoint.load(f"{job.uri}/chk-{number}")


def test_a_checkpoint_tells_whose_it_is_and_what_it_holds(job: LocalJob) -> None:
    savepoint = _at(job, 3)

    assert (savepoint.job_id, savepoint.job_name, savepoint.checkpoint_id, savepoint.epoch) == (
        JOB_ID,
        "local job",
        3,
        3,
    )
    assert savepoint.path.endswith("/chk-3")
    assert savepoint.completed_at >= savepoint.triggered_at
    assert [(each.uid, each.parallelism, each.max_parallelism) for each in savepoint.operators] == [
        ("buffer", 2, 128),
        ("everything", 2, 128),
        ("out", 2, 128),
    ]
    described = {state.name: (state.kind, state.type) for state in savepoint.states("everything")}
    assert described == {
        "count": ("value", "int"),
        "numbers": ("list", "list[int]"),
        "total": ("reducing", "int"),
        "by number": ("map", "int"),
        "_timers/event": ("timer", "time"),
        "_timers/processing": ("timer", "time"),
        "rules": ("broadcast", "str"),
    }


def test_the_metadata_file_names_the_same_snapshot(job: LocalJob) -> None:
    assert Savepoint.load(f"{job.uri}/chk-3/_metadata").path == _at(job, 3).path


def test_keyed_state_and_timers_are_as_of_the_checkpoint(job: LocalJob) -> None:
    before, after = _at(job, 2), _at(job, 3)

    assert dict(before.keyed_state("everything", "numbers")) == {"a": [1, 4], "b": [2], "c": [5], "d": [7]}
    assert dict(after.keyed_state("everything", "numbers")) == {"a": [1, 4], "b": [2, 8], "c": [5], "d": [7]}
    assert after.keyed_state("everything", "by number").get("b") == {2: 2}
    assert before.timers("everything").get("b") == [("event time", 7)]
    assert after.timers("everything").get("b") == [("event time", 13)]


def test_operator_state_has_the_elements_of_every_subtask(job: LocalJob) -> None:
    savepoint = _at(job, 3)

    records = savepoint.operator_state("buffer", "records")
    assert sorted(value for _, value in records) == sorted(f"{k}-{n}{PADDING}" for epoch in EPOCHS for k, n in epoch)
    assert records.count() == records.to_arrow().num_rows == 7
    counts = savepoint.operator_state("buffer", "counts").to_pandas()
    assert sorted(counts["subtask"]) == [0, 1]
    assert sum(value["f1"] for value in counts["value"]) == 7


def test_broadcast_state_is_there_once(job: LocalJob) -> None:
    rules = _at(job, 3).broadcast_state("everything", "rules")

    assert list(rules) == [(3, "rule 3")]
    assert rules.to_arrow().to_pylist() == [{"key": 3, "value": "rule 3"}]
    assert (rules.get(3), rules.get(4)) == ("rule 3", None)


def test_each_kind_is_asked_for_by_its_own_name(job: LocalJob) -> None:
    savepoint = _at(job, 3)

    with pytest.raises(StateAccessError, match='"rules"'):
        savepoint.broadcast_state("everything", "rule")
    with pytest.raises(StateAccessError, match=r'"rules" \(broadcast\)'):
        savepoint.operator_state("everything", "rules")
    with pytest.raises(StateAccessError, match="no state here"):
        savepoint.timers("out")


def test_the_difference_of_two_checkpoints_is_what_the_epoch_between_did(job: LocalJob) -> None:
    found = {each.description.name: each for each in diff(_at(job, 2), _at(job, 3))}

    counts = {name: (each.added, each.changed, each.removed, each.unchanged) for name, each in found.items()}
    assert counts == {
        "records": (1, 0, 0, 6),
        "counts": (1, 0, 1, 1),
        "count": (0, 1, 0, 3),
        "numbers": (0, 1, 0, 3),
        "total": (0, 1, 0, 3),
        "by number": (0, 1, 0, 3),
        "_timers/event": (1, 0, 1, 3),
        "_timers/processing": (0, 0, 0, 0),
        "rules": (0, 0, 0, 1),
    }
    [example] = found["numbers"].examples
    assert (example.what, example.key, example.before, example.after) == ("changed", "b", [2], [2, 8])


def test_where_there_is_no_snapshot_those_near_are_named(job: LocalJob) -> None:
    with pytest.raises(CheckpointNotFoundError, match="chk-4"):
        _at(job, 44)
