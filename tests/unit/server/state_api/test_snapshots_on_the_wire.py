"""State at rest over REST: only of snapshots that the job is known to have."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.support.snapshot_files import completed, written
from tests.unit.server.made_jobs import COMPLETED, COUNT, JOB, RECORD
from tests.unit.server.serving import Served

from checkdam.backends import HashMapStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import OperatorEntry
from checkdam.ids import Attempt, CheckpointId, OperatorUid, SubtaskIndex
from checkdam.runtime.monitor.job_records import CheckpointRecord, SnapshotKind
from checkdam.server.state_api.snapshot_endpoints import Cache
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.spec import StateKind, StateSpec
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree
from checkdam.testing.local_job import JOB_ID
from checkdam.types.hints import PickleType
from checkdam.types.type_info import type_info

BEFORE = {f"k{i}": i for i in range(30)}
AFTER = {**{f"k{i}": i for i in range(1, 30)}, "k5": 50, "new": 1}


@pytest.fixture
def state(served: Served, tmp_path: Path) -> str:
    """Where the state "sums" of operator "count" is in the later of two checkpoints."""
    storage = open_storage(str(tmp_path))
    paths = [
        written(storage, {"count": {("sums", str, int): values}}, checkpoint_id=number)
        for number, values in ((1, BEFORE), (2, AFTER))
    ]
    known = [_completed(number, path) for number, path in enumerate(paths, start=1)]
    discarded = msgspec.structs.replace(_completed(3, f"{tmp_path}/{JOB_ID}/chk-3"), is_discarded=True)
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(discarded, *reversed(known)), savepoints=()))
    return "/snapshots/chk-2/state/count/sums"


def _completed(number: int, path: str) -> CheckpointRecord:
    return msgspec.structs.replace(
        COMPLETED, id=number, epoch=number, kind=SnapshotKind.CHECKPOINT, path=path, finished_at=1_000 * number
    )


@pytest.mark.usefixtures("state")
def test_the_snapshots_that_can_be_read_are_listed_newest_first(served: Served) -> None:
    listed = served.of_job("/snapshots")["snapshots"]

    assert [(each["ref"], each["kind"], each["epoch"], each["completed"]) for each in listed] == [
        ("chk-2", "CHECKPOINT", 2, 2_000),
        ("chk-1", "CHECKPOINT", 1, 1_000),
    ]


@pytest.mark.usefixtures("state")
def test_the_states_in_a_snapshot_are_told_with_types_and_entries(served: Served) -> None:
    told = served.of_job("/snapshots/chk-2/state")

    [operator] = told["operators"]
    assert told["epoch"] == 2
    assert (operator["uid"], operator["vertex"], operator["parallelism"], operator["max-parallelism"]) == (
        "count",
        COUNT,
        2,
        128,
    )
    [held] = operator["states"]
    assert (held["name"], held["kind"], held["key-type"], held["type"], held["entries"], held["ttl"]) == (
        "sums",
        "value",
        "str",
        "int",
        30,
        False,
    )


def test_a_key_is_looked_up_and_a_missing_one_is_no_error(served: Served, state: str) -> None:
    found, missing = served.of_job(state, key="k5"), served.of_job(state, key="nobody")

    assert (found["found"], found["value"], found["key"], found["epoch"]) == (True, 50, "k5", 2)
    assert (missing["found"], missing["value"]) == (False, None)


def test_pages_of_keys_hold_every_key_once(served: Served, state: str) -> None:
    keys: list[tuple[str, int]] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        page = served.of_job(f"{state}/keys", cursor=cursor, limit=7)
        keys += [(entry["key"], entry["value"]) for entry in page["entries"]]
        cursor, pages = page["next"], pages + 1

    assert pages == 5
    assert len(keys) == len(AFTER)
    assert dict(keys) == AFTER


def test_the_sizes_of_key_groups_add_up(served: Served, state: str) -> None:
    groups = served.of_job(f"{state}/key-groups")["key-groups"]

    assert sum(group["entries"] for group in groups) == len(AFTER)
    assert all(group["bytes"] > 0 and group["subtask"] == group["key-group"] * 2 // 128 for group in groups)


@pytest.mark.usefixtures("state")
def test_two_snapshots_are_compared(served: Served) -> None:
    [found] = served.of_job("/snapshots/chk-1/diff/chk-2")["states"]

    assert (found["uid"], found["name"]) == ("count", "sums")
    assert (found["added"], found["changed"], found["removed"], found["unchanged"]) == (1, 1, 1, 28)
    assert {(each["what"], each["key"], each["before"], each["after"]) for each in found["examples"]} == {
        ("added", "new", None, 1),
        ("changed", "k5", 5, 50),
        ("removed", "k0", 0, None),
    }


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/snapshots/chk-3/state", 404, "Available: chk-2, chk-1."),  # discarded
        ("/snapshots/..%2F..%2Fetc/state", 404, "Available: chk-2, chk-1."),
        ("/snapshots/chk-2/state/coutn/sums?key=1", 404, 'Did you mean "count"'),
        ("/snapshots/chk-2/state/count/sum?key=1", 404, 'Did you mean "sums"'),
        ("/snapshots/chk-2/state/count/sums", 400, "key"),
        ("/snapshots/chk-2/state/count/sums?key=1&map-key=2", 400, "is not a map"),
        ("/snapshots/chk-2/state/count/sums/keys?cursor=x", 400, "not a cursor"),
        ("/snapshots/chk-2/state/count/sums/keys?cursor=999:0", 400, "not a cursor"),
        ("/snapshots/chk-2/state/count/sums/keys?limit=0", 400, "limit"),
        ("/snapshots/chk-1/diff/chk-7", 404, "Available: chk-2, chk-1."),
        ("/snapshots/chk-1/diff/chk-2?uid=nobody", 404, "nobody"),
    ],
)
@pytest.mark.usefixtures("state")
def test_what_is_not_there_is_told_in_flinks_form(served: Served, path: str, status: int, told: str) -> None:
    assert told in served.errors("GET", f"/jobs/{JOB}{path}", status)[0]


def test_a_state_file_that_is_damaged_is_told_and_not_remembered(served: Served, state: str, tmp_path: Path) -> None:
    [file, *_] = sorted(path for path in tmp_path.rglob("shared/*") if path.name.split("-")[2] == "2")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])

    assert "damaged" in served.errors("GET", f"/jobs/{JOB}{state}/key-groups", 409)[0]
    file.write_bytes(whole)
    assert served.of_job(f"{state}/key-groups")["key-groups"]


def test_what_is_asked_for_twice_at_once_is_worked_out_once() -> None:
    cache, started, go_on, made = Cache(), threading.Event(), threading.Event(), []

    def make() -> int:
        made.append(1)
        started.set()
        assert go_on.wait(10)
        return 7

    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(cache.get("asked", make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()

    assert answers == [7, 7]
    assert len(made) == 1


def test_a_cache_forgets_what_was_not_asked_for_longest() -> None:
    cache, made = Cache(size=2), list[int]()
    for asked in (1, 2, 1, 3, 1, 2):
        cache.get(asked, partial(made.append, asked))

    assert made == [1, 2, 3, 2]


@dataclass(frozen=True)
class Place:
    town: str
    number: int


def test_one_entry_of_a_map_by_places_is_told(served: Served, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    owner = StoreOwner(OperatorUid("count"), SubtaskIndex(0), Attempt("a"), KeyGroupRange(0, 127), 128, type_info(str))
    store = HashMapStateBackend().open(owner, (), None, claim=True)
    visits = store.maps(StateSpec("visits", StateKind.MAP, type_info(int), type_info(Place)))
    store.current_key = "a"
    visits.put(Place("north", 1), 5)
    handle = store.snapshot(CheckpointId(1)).write(subtree(storage, JOB_ID), "shared")
    entry = OperatorEntry(owner.uid, "count", 1, 128, {owner.subtask: handle})
    path = CheckpointStore(storage, JOB_ID).write(completed([entry], parallelism=1))
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(_completed(1, path),), savepoints=()))

    found, missing = (
        served.of_job(
            "/snapshots/chk-1/state/count/visits",
            **{"key": "a", "map-key": json.dumps({"town": "north", "number": number})},
        )
        for number in (1, 2)
    )

    assert (found["found"], found["value"]) == (True, 5)
    assert (missing["found"], missing["value"]) == (False, None)


class Model:
    """Counts how often one was unpickled."""

    unpickled = 0

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, ()


def _unpickled() -> Model:
    Model.unpickled += 1
    return Model()


def test_a_pickled_value_is_told_as_bytes_and_never_unpickled(served: Served, tmp_path: Path) -> None:
    path = written(open_storage(str(tmp_path)), {"count": {("model", str, PickleType(Model)): {"a": Model()}}})
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(_completed(1, path),), savepoints=()))
    before = Model.unpickled

    told = served.of_job("/snapshots/chk-1/state/count/model", key='"a"')

    assert set(told["value"]) == {"base64"}
    assert Model.unpickled == before
