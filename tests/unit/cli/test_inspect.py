"""`checkdam inspect`, on checkpoints that the real code has written."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.every_state import EveryState

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.operator_state_file import keep
from checkdam.cli import inspect as inspection
from checkdam.cli.main import command_line
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.restore import from_path
from checkdam.state.key_groups import KeyGroupRange, key_group_of
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStatePart, Redistribution, SavepointFormat
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import StateTtlConfig
from checkdam.state_reader.savepoint_reader import Savepoint
from checkdam.storage import open_storage
from checkdam.storage.subtree import Subtree
from checkdam.testing.gate import Gate
from checkdam.types.serializers import serializer
from checkdam.types.type_info import tuple_of, type_info

FLINK = Path(__file__).parents[2] / "compat" / "data" / "flink"
JOB = JobId("0123456789abcdef0123456789abcdef")
UID = OperatorUid("counter")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


TTL = StateTtlConfig(timedelta(hours=1))
TIMED = tuple_of([type_info(str), type_info(int)])


KEYED_STATES = [
    ("count", "value", "int", 100, False),
    ("last words", "value", "tuple[str, float]", 3, False),
    ("seen", "list", "list[str]", 1, True),
    ("pages", "map", "dict[int, str]", 4, True),
    ("_timers/event", "timer", "time", 4, False),
]


def _handle(root: Path, backend: KeyedStateBackend) -> KeyedStateHandle:
    """All kinds of state in a base and a delta: 100 keys counted, one of them removed, one added, and more."""
    storage = Subtree(open_storage(str(root)), JOB)
    owner = StoreOwner(
        UID, SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 127), 128, type_info(str), lambda: root / "working"
    )
    store = backend.open(owner, (), storage, claim=True)
    count = store.cells(StateSpec("count", StateKind.VALUE, type_info(int)))
    last = store.table(StateSpec("last words", StateKind.VALUE, type_info(tuple[str, float])))
    seen = store.cells(
        StateSpec("seen", StateKind.LIST, type_info(list[tuple[str, int]]), ttl=TTL), lambda value: value
    )
    pages = store.maps(StateSpec("pages", StateKind.MAP, TIMED, type_info(int), ttl=TTL), lambda value: value)
    timers = store.maps(StateSpec("_timers/event", StateKind.TIMER, type_info(bool), type_info(int)))
    for number in range(100):
        store.current_key = f"k{number}"
        count.update(number)
    store.end_epoch()
    store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.completed(CheckpointId(1))
    store.current_key = "k0"
    count.clear()
    for key, value in {"k1": 100, "new": 1}.items():
        store.current_key = key
        count.update(value)
    seen.update([("x", 5)])
    for number in range(4):
        pages.put(number, ("a", 5))
        timers.put(1000 + number, True)
    last.put_all({"k1": ("a", 1.0), "k2": ("b", 2.0), "k3": ("c", 3.0)})
    store.end_epoch()
    handle = store.snapshot(CheckpointId(2)).write(storage, "shared")
    store.close()
    return handle


def _all_fresh(stored: Any) -> Any:
    return stored


def _operator_state(root: Path) -> OperatorEntry:
    """Two subtasks: one with small states, one with a large one; a third has finished."""
    storage = Subtree(open_storage(str(root)), JOB)
    offsets = OperatorStatePart("offsets", Redistribution.UNION, serializer(type_info(int)).spec, (b"1", b"22"))
    rules = OperatorStatePart("rules", Redistribution.BROADCAST, serializer(TIMED).spec, (b"x" * 30_000,))
    return OperatorEntry(
        OperatorUid("numbers"),
        "numbers",
        3,
        128,
        operator_states={
            SubtaskIndex(0): keep((offsets,), storage, "shared/operator-0"),
            SubtaskIndex(1): keep((offsets, rules), storage, "shared/operator-1"),
        },
        finished=frozenset({SubtaskIndex(2)}),
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return _checkpoint(tmp_path, HashMapStateBackend())


def _checkpoint(tmp_path: Path, backend: KeyedStateBackend) -> Path:
    written = CompletedCheckpoint(
        checkpoint_id=CheckpointId(2),
        job_id=JOB,
        job_name="words [x]",
        epoch=Epoch(7),
        triggered_at=AT,
        completed_at=AT + timedelta(milliseconds=80),
        parallelism=1,
        max_parallelism=128,
        operators=(
            OperatorEntry(UID, "count words", 1, 128, {SubtaskIndex(0): _handle(tmp_path, backend)}),
            OperatorEntry(OperatorUid("files"), "files(out)", 1, 128, committables=(b"1", b"2")),
            _operator_state(tmp_path),
        ),
        settings={"mode": "exactly_once", "retention": "retain_on_failure"},
    )
    CheckpointStore(open_storage(str(tmp_path)), JOB).write(written)
    return tmp_path / JOB / "chk-2"


def _inspected(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert command_line(["inspect", "--json", *options, str(path)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _inline(checkpoint: Path) -> int:
    """The bytes of operator state in the metadata."""
    entries = from_path(str(checkpoint)).checkpoint.operators
    contents = [handle.content for entry in entries for handle in entry.operator_states.values()]
    return sum(len(content) for content in contents if isinstance(content, bytes))


def test_json_tells_all_there_is(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _inspected(checkpoint, capsys)

    assert {key: found[key] for key in ("job_id", "job_name", "checkpoint_id", "epoch", "parallelism", "mode")} == {
        "job_id": JOB,
        "job_name": "words [x]",
        "checkpoint_id": 2,
        "epoch": 7,
        "parallelism": 1,
        "mode": "exactly_once",
    }
    assert found["completed_at"] == "2026-01-02T03:04:05.080000Z"
    counter, files, numbers = found["operators"]
    assert (counter["uid"], counter["key_type"], counter["files"]) == ("counter", "str", 2)
    assert (counter["backend"], numbers["backend"]) == ("hashmap", None)
    in_files = sum(f.stat().st_size for f in checkpoint.parent.glob("shared/*"))
    assert found["bytes"] == in_files + _inline(checkpoint) > in_files
    assert found["bytes"] == counter["bytes"] + numbers["bytes"]
    assert [_facts(state) for state in counter["states"]] == KEYED_STATES
    assert all(state["entries_are_exact"] for state in counter["states"])
    assert files["uncommitted_outputs"] == 2
    assert numbers["finished_subtasks"] == 1
    assert [(*_facts(state), state["bytes"]) for state in numbers["states"]] == [
        ("offsets", "operator union list", "int", 4, False, 6),
        ("rules", "broadcast", "tuple[str, int]", 1, False, 30_000),
    ]


def test_rocksdb_state_is_shown_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _checkpoint(tmp_path, RocksDBStateBackend(memory="16 MB"))

    counter = _inspected(path, capsys)["operators"][0]

    assert (counter["backend"], counter["key_type"]) == ("rocksdb", "str")
    assert sorted(_facts(state) for state in counter["states"]) == sorted(KEYED_STATES)
    monkeypatch.setattr(inspection, "READ_IN_FULL_BYTES", 0)
    large = _inspected(path, capsys)["operators"][0]["states"]
    assert {state["entries"] for state in large} == {None}
    assert command_line(["inspect", str(path)]) == 0
    assert "?" in capsys.readouterr().out


def _facts(state: dict[str, Any]) -> tuple[Any, ...]:
    return state["name"], state["kind"], state["type"], state["entries"], state["ttl"]


def test_the_page_for_people_shows_the_same(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["inspect", str(checkpoint / "_metadata")]) == 0

    page = capsys.readouterr().out
    assert f"words [x] ({JOB})" in page
    assert "2026-01-02 03:04:05 +00:00, took 80 ms" in page
    assert "tuple[str, float]" in page
    assert "2 outputs to publish" in page
    assert "map, TTL" in page
    assert "numbers ×3, max 128 · 1 finished" in page
    assert "checkpoint   2, after epoch 7" in page
    assert f"path         {checkpoint}\n" in page
    assert "broadcast" in page


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verb", [["inspect"], ["state", "ls"]])
def test_no_word_is_cut_on_a_terminal(
    checkpoint: Path, width: int, verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line([*verb, str(checkpoint)]) == 0
    whole = capsys.readouterr().out.split()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))

    assert command_line([*verb, str(checkpoint)]) == 0

    on_terminal = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert sorted(on_terminal.split()) == sorted(whole)
    assert [line for line in on_terminal.splitlines() if len(line) > width and str(checkpoint) not in line] == []


def test_a_savepoint_is_called_one_with_its_format_and_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = EveryState([[("a", 1), ("rule", 3), ("rule", 4)]], HashMapStateBackend()).job(until=(gate := Gate()))
    control = job.start()
    job.heard.wait_for_epoch(1)
    path = control.trigger_savepoint(str(tmp_path / "my savepoints"), SavepointFormat.NATIVE).result()
    gate.open()
    job.join()

    assert command_line(["inspect", path]) == 0
    page = capsys.readouterr().out
    found = _inspected(Path(path), capsys)
    assert command_line(["state", "ls", path]) == 0
    listed = capsys.readouterr().out

    assert (found["kind"], found["format"]) == ("savepoint", "NATIVE")
    assert f"savepoint    {found['checkpoint_id']} (native), after epoch 1\n" in page
    assert f"savepoint {found['checkpoint_id']} (native), after epoch 1, " in listed
    [shown] = re.findall(r"^path +(.*)$", page, re.MULTILINE)
    assert Path(shown).is_dir()
    assert shown == path


def test_state_ls_counts_as_inspect_does(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspected = _inspected(checkpoint, capsys)["operators"]

    assert command_line(["state", "ls", "--json", str(checkpoint)]) == 0

    listed = json.loads(capsys.readouterr().out)["operators"]
    assert _counts(listed) == _counts(inspected)
    assert _counts(listed)["counter", "count"] == (100, True)  # 102 in the files: one is removed, one is in both


def _counts(operators: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, bool]]:
    return {
        (operator["uid"], state["name"]): (state["entries"], state["entries_are_exact"])
        for operator in operators
        for state in operator["states"]
    }


def test_of_large_states_only_the_index_is_read_unless_asked(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspection, "READ_IN_FULL_BYTES", 0)

    counted = _inspected(checkpoint, capsys)["operators"][0]["states"][0]
    assert (counted["entries"], counted["entries_are_exact"]) == (102, False)  # 100 in the base, 2 in the delta
    counted = _inspected(checkpoint, capsys, "--full")["operators"][0]["states"][0]
    assert (counted["entries"], counted["entries_are_exact"]) == (100, True)


def _half(root: Path, subtask: int, of: type) -> KeyedStateHandle:
    """One of two subtasks, in which the counts have this type."""
    storage, first = Subtree(open_storage(str(root)), JOB), 64 * subtask
    groups = KeyGroupRange(first, first + 63)
    owner = StoreOwner(UID, SubtaskIndex(subtask), Attempt("a1"), groups, 128, type_info(str))
    store = HashMapStateBackend().open(owner, (), storage, claim=True)
    counts = store.cells(StateSpec("count", StateKind.VALUE, type_info(of)))
    store.current_key = next(key for key in map(str, range(100)) if key_group_of(key, type_info(str), 128) in groups)
    counts.update(of(1))
    store.end_epoch()
    handle = store.snapshot(CheckpointId(2)).write(storage, "shared")
    store.close()
    return handle


def test_a_state_that_only_some_subtasks_have_migrated_is_shown_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = {SubtaskIndex(subtask): _half(tmp_path, subtask, of) for subtask, of in enumerate((int, float))}
    operator = OperatorEntry(UID, "count words", 2, 128, halves)
    written = CompletedCheckpoint(CheckpointId(2), JOB, "words", Epoch(7), AT, AT, 2, 128, (operator,))
    CheckpointStore(open_storage(str(tmp_path)), JOB).write(written)

    [counter] = _inspected(tmp_path / JOB / "chk-2", capsys)["operators"]

    assert [(state["name"], state["type"], state["entries"]) for state in counter["states"]] == [("count", "float", 2)]


def test_broadcast_state_counts_once_however_many_subtasks_hold_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = Subtree(open_storage(str(tmp_path)), JOB)
    rules = OperatorStatePart("rules", Redistribution.BROADCAST, serializer(TIMED).spec, (b"1", b"22"))
    copies = {SubtaskIndex(each): keep((rules,), storage, f"shared/operator-{each}") for each in range(3)}
    operator = OperatorEntry(UID, "rules", 3, 128, operator_states=copies)
    written = CompletedCheckpoint(CheckpointId(2), JOB, "words", Epoch(7), AT, AT, 3, 128, (operator,))
    CheckpointStore(open_storage(str(tmp_path)), JOB).write(written)

    path = tmp_path / JOB / "chk-2"
    [found] = _inspected(path, capsys)["operators"]
    assert command_line(["state", "ls", "--json", str(path)]) == 0
    [listed] = json.loads(capsys.readouterr().out)["operators"]

    for operator in (found, listed):
        assert [(state["entries"], state["bytes"]) for state in operator["states"]] == [(2, 3)]
    assert Savepoint.load(str(path)).broadcast_state(UID, "rules").count() == 2


@pytest.mark.parametrize("path", sorted(FLINK.iterdir()), ids=lambda path: path.name)
def test_what_flink_wrote_is_shown_by_operators_and_handles(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_metadata").write_bytes(path.read_bytes())

    found = _inspected(tmp_path, capsys)
    assert command_line(["inspect", str(tmp_path)]) == 0

    assert found["written_by"] == "flink"
    assert any(kind.startswith("keyed") for operator in found["operators"] for kind in operator["handles"])
    assert found["bytes"] > 0
    assert "written by Flink" in capsys.readouterr().out


def _error(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert command_line(["inspect", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    return said.err


def test_a_path_without_a_checkpoint_names_those_near_it(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "chk-2" in _error(checkpoint.parent / "chk-9", capsys)


@pytest.mark.parametrize("keep", [0, 3, 40, 200])
def test_truncated_metadata_is_told(checkpoint: Path, keep: int, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = checkpoint / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:keep])

    assert "is damaged" in _error(checkpoint, capsys)


@pytest.mark.parametrize("file", ["chk-2/_metadata", "shared/*"])
def test_any_flipped_byte_is_told(checkpoint: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (target, *_) = sorted(checkpoint.parent.glob(file))
    whole = target.read_bytes()

    for position in range(0, len(whole), 7):
        target.write_bytes(whole[:position] + bytes([whole[position] ^ 0x01]) + whole[position + 1 :])
        _error(checkpoint, capsys)


@pytest.mark.parametrize(("file", "told"), [("operator-*", "it is gone"), ("[!o]*", "is missing")])
def test_a_state_file_that_is_gone_is_told(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], file: str, told: str
) -> None:
    next((checkpoint.parent / "shared").glob(file)).unlink()

    assert told in _error(checkpoint, capsys)


def test_a_newer_version_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(min(FLINK.iterdir()).read_bytes())
    data[4:8] = (99).to_bytes(4, "big")
    (tmp_path / "_metadata").write_bytes(data)

    assert "has metadata version 99" in _error(tmp_path, capsys)
