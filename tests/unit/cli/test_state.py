"""`checkdam state ls|show|diff`."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.every_state import EveryState
from tests.support.snapshot_files import written
from tests.support.windowed_jobs import WindowedJob

from checkdam.backends import HashMapStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.cli.main import command_line
from checkdam.cli.state_tables import window_text
from checkdam.storage.filesystem import open_storage
from checkdam.testing.local_job import JOB_ID

FLINK = Path(__file__).parents[2] / "compat" / "data"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a job with every kind of state, and of its checkpoints."""
    directory = tmp_path_factory.mktemp("ck")
    epochs = [[("a", 1), ("b", 2), ("rule", 3)], [("a", 4), ("c", 5)], [("b", 8)]]
    kept = CheckpointConfig(timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION, num_retained=9)
    every_state = EveryState(epochs, HashMapStateBackend(), storage=open_storage(str(directory)))
    every_state.job(checkpoints=kept).run()
    return f"{directory}/{JOB_ID}"


Output = pytest.CaptureFixture[str]


def _json(capsys: Output, *arguments: str) -> Any:
    assert command_line(["state", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _lines(capsys: Output, *arguments: str) -> list[Any]:
    assert command_line(["state", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _refused(capsys: Output, *arguments: str, code: int = 2) -> str:
    assert command_line(["state", *arguments]) == code
    return capsys.readouterr().err


def test_ls_lists_every_state_with_its_types_and_sizes(capsys: Output, job: str) -> None:
    told = _json(capsys, "ls", f"{job}/chk-2")

    by_uid = {operator["uid"]: operator for operator in told["operators"]}
    assert (told["job_id"], told["epoch"], by_uid["everything"]["parallelism"]) == (JOB_ID, 2, 2)
    kinds = {state["name"]: state["kind"] for state in by_uid["everything"]["states"]}
    assert (kinds["by number"], kinds["rules"], kinds["_timers/event"]) == ("map", "broadcast", "timer")
    command_line(["state", "ls", f"{job}/chk-2"])
    assert "dict[int, int]" in capsys.readouterr().out


def test_show_shows_entries_up_to_a_limit(capsys: Output, job: str) -> None:
    rows = _lines(capsys, "show", f"{job}/chk-2", "everything", "by number")

    assert {(row["key"], row["map_key"], row["value"]) for row in rows} == {("a", 1, 2), ("b", 2, 1), ("c", 2, 1)}
    assert len(_lines(capsys, "show", f"{job}/chk-2", "everything", "by number", "--limit", "2")) == 2
    command_line(["state", "show", f"{job}/chk-2", "everything", "count", "--limit", "1"])
    assert "3 in all" in capsys.readouterr().out


def test_show_finds_a_key_and_a_missing_one_is_no_error(capsys: Output, job: str) -> None:
    [found] = _lines(capsys, "show", f"{job}/chk-2", "everything", "numbers", "--key", "a")

    assert found["value"] == [1, 4]
    assert _lines(capsys, "show", f"{job}/chk-2", "everything", "numbers", "--key", "nobody") == []


def test_show_counts_the_rows_of_the_key_that_is_asked_for(capsys: Output, tmp_path: Path) -> None:
    epochs = [[("a", number), ("b", number)] for number in range(3)]  # a map with three entries for each key
    kept = CheckpointConfig(timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION)
    EveryState(epochs, HashMapStateBackend(), storage=open_storage(str(tmp_path))).job(checkpoints=kept).run()
    [path] = tmp_path.glob(f"{JOB_ID}/chk-*")

    assert command_line(["state", "show", str(path), "everything", "by number", "--key", "a", "--limit", "2"]) == 0
    of_key = capsys.readouterr().out
    assert command_line(["state", "show", str(path), "everything", "by number", "--limit", "2"]) == 0
    of_all = capsys.readouterr().out

    assert "3 in all" in of_key
    assert "6 in all" in of_all


def test_show_shows_timers_operator_state_and_broadcast_state(capsys: Output, job: str) -> None:
    timers = _lines(capsys, "show", f"{job}/chk-2", "everything", "--timers")
    rules = _lines(capsys, "show", f"{job}/chk-2", "everything", "rules")
    counts = _lines(capsys, "show", f"{job}/chk-2", "buffer", "counts")

    assert {"key": "c", "timestamp": 10, "time_domain": "event time"} in timers
    assert rules == [{"key": 3, "value": "rule 3"}]
    assert [row["subtask"] for row in counts] == [0, 1]


def test_diff_counts_what_changed_with_examples(capsys: Output, job: str) -> None:
    [found] = _json(capsys, "diff", f"{job}/chk-2", f"{job}/chk-3", "everything", "numbers")["states"]

    assert (found["added"], found["changed"], found["removed"], found["unchanged"]) == (0, 1, 0, 2)
    assert found["examples"] == [{"what": "changed", "key": "b", "before": [2], "after": [2, 8]}]
    assert len(_json(capsys, "diff", f"{job}/chk-2", f"{job}/chk-3")["states"]) == 9
    command_line(["state", "diff", f"{job}/chk-2", f"{job}/chk-3", "everything", "numbers"])
    assert "[2, 8]" in capsys.readouterr().out


def test_wrong_names_are_told_with_the_nearest(capsys: Output, job: str) -> None:
    path = f"{job}/chk-2"

    assert 'Did you mean "everything"' in _refused(capsys, "show", path, "everythin", "count")
    assert 'Did you mean "count"' in _refused(capsys, "show", path, "everything", "cout")
    assert 'Name one of "count"' in _refused(capsys, "show", path, "everything")
    assert "has no keys" in _refused(capsys, "show", path, "everything", "rules", "--key", "3")
    assert 'Did you mean "count"' in _refused(capsys, "diff", path, path, "everything", "cout")
    assert "chk-2" in _refused(capsys, "ls", f"{job}/chk-77", code=1)


def test_snapshots_of_other_keys_are_not_compared(capsys: Output, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    old = written(storage, {"op": {("count", str, int): {"a": 1}}}, checkpoint_id=1)
    new = written(storage, {"op": {("count", int, int): {1: 1}}}, checkpoint_id=2)
    fewer = written(storage, {"op": {("count", str, int): {"a": 1}}}, checkpoint_id=3, max_parallelism=16)

    assert "its key type was str and is int" in _refused(capsys, "diff", old, new)
    assert "128 key groups in the older snapshot and 16" in _refused(capsys, "diff", old, fewer)


def test_what_flink_wrote_is_listed_and_not_shown(capsys: Output, tmp_path: Path) -> None:
    metadata = next(path for path in sorted(FLINK.rglob("*")) if path.is_file() and "flink" in str(path).lower())
    (tmp_path / "_metadata").write_bytes(metadata.read_bytes())

    assert _json(capsys, "ls", str(tmp_path))["written_by"] == "flink"
    assert "only Flink can read" in _refused(capsys, "show", str(tmp_path), "op", code=1)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("windows")
    kept = CheckpointConfig(timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION, num_retained=9)
    WindowedJob(storage=open_storage(str(directory))).job(checkpoints=kept).run()
    return f"{directory}/{JOB_ID}"


def _out(capsys: Output, *arguments: str) -> str:
    assert command_line([*arguments]) == 0
    return capsys.readouterr().out


def _columns(out: str) -> list[str]:
    """The names of the columns of the table that is printed."""
    head = next(line for line in out.splitlines() if line.startswith("key "))
    return re.split(r"\s{2,}", head.strip())


def test_window_state_is_shown_with_start_and_end_of_the_window(capsys: Output, windowed: str) -> None:
    out = _out(capsys, "state", "show", f"{windowed}/chk-2", "clicks", "window-contents", "--key", "ada")
    rows = _lines(capsys, "show", f"{windowed}/chk-2", "clicks", "--key", "ada")

    assert _columns(out) == ["key", "window", "value", "key group"]
    assert "1970-01-01 00:00:00 – 1970-01-01 00:01:00" in out
    assert "1970-01-01 00:01:00 – 1970-01-01 00:02:00" in out
    assert "bob" not in out
    assert {(row["key"], row["window"]["end"], row["value"][1]) for row in rows} == {
        ("ada", 60_000, 13),
        ("ada", 120_000, 2),
    }


def test_timers_of_windows_are_shown_with_their_window(capsys: Output, windowed: str) -> None:
    out = _out(capsys, "state", "show", f"{windowed}/chk-2", "clicks", "--timers", "--key", "bob")

    assert _columns(out) == ["key", "window", "timestamp", "time domain"]
    assert "1970-01-01 00:00:00 – 1970-01-01 00:01:00" in out
    assert "59999" in out
    assert "ada" not in out


def test_ls_and_inspect_tell_that_a_state_is_by_window(capsys: Output, windowed: str) -> None:
    assert "tuple[str, int, int] by TimeWindow" in _out(capsys, "state", "ls", f"{windowed}/chk-2")
    assert "tuple[str, int, int] by TimeWindow" in _out(capsys, "inspect", f"{windowed}/chk-2")


def test_diff_shows_key_and_window(capsys: Output, windowed: str) -> None:
    out = _out(capsys, "state", "diff", f"{windowed}/chk-2", f"{windowed}/chk-3", "clicks", "window-contents")

    assert "bob, 1970-01-01 00:01:00 – 1970-01-01 00:02:00 +00:00" in out


@pytest.mark.parametrize(
    ("window", "text"),
    [
        ({"start": 0, "end": 1_500}, "1970-01-01 00:00:00.000 – 1970-01-01 00:00:01.500 +00:00"),
        ({"start": -1_500, "end": 0}, "1969-12-31 23:59:58.500 – 1970-01-01 00:00:00.000 +00:00"),
        ({"start": 0, "end": 2**63 - 1}, f"0 – {2**63 - 1}"),
        ({"id": 0}, "global"),
        ({"day": 5}, '{"day": 5}'),
        (None, ""),
    ],
)
def test_a_window_is_shown_as_what_it_is(window: Any, text: str) -> None:
    assert window_text(window) == text
