"""State of windows in snapshots, read without the job: a column for the window, timers of windows, differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.windowed_jobs import BACKENDS, UID, Click, WindowedJob

from checkdam import (
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    JoinContext,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    WatermarkStrategy,
    WindowedStream,
)
from checkdam.backends import KeyedStateBackend
from checkdam.state_reader import Savepoint
from checkdam.state_reader.diffing import diff
from checkdam.state_reader.json_rows import json_example, json_rows
from checkdam.state_reader.spark_source import CheckdamDataSource
from checkdam.testing import LocalJob, MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH

FIRST, SECOND = TimeWindow(0, 60_000), TimeWindow(60_000, 120_000)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


@pytest.fixture
def job(backend: KeyedStateBackend) -> LocalJob:
    """A job that ran, and kept all of its checkpoints."""
    job = WindowedJob(backend=backend).job()
    job.run()
    return job


def _at(job: LocalJob, number: int) -> Savepoint:
    return Savepoint.load(f"{job.uri}/chk-{number}")


def test_the_contents_of_windows_have_a_column_for_the_window(job: LocalJob) -> None:
    contents = _at(job, 2).keyed_state(UID, "window-contents")

    assert contents.schema.names == ["key", "window", "value", "key_group"]
    rows = [(row["key"], row["window"], row["value"]["f1"]) for row in contents.to_arrow().to_pylist()]
    assert sorted(rows, key=repr) == [
        ("ada", {"start": 0, "end": 60_000}, 13),
        ("ada", {"start": 60_000, "end": 120_000}, 2),
        ("bob", {"start": 0, "end": 60_000}, 1),
    ]


def test_a_key_is_looked_up_by_window(job: LocalJob) -> None:
    contents = _at(job, 2).keyed_state(UID, "window-contents")

    found = contents.get("ada")

    assert found == {FIRST: ("ada", 13, 5_000), SECOND: ("ada", 2, 61_000)}
    assert {type(window) for window in found} == {TimeWindow}
    assert contents.get("eve") is None
    assert {key[1].max_timestamp for key, _ in contents} == {59_999, 119_999}


def test_states_tell_the_type_of_their_windows(job: LocalJob) -> None:
    described = {state.name: (state.kind, state.window_type) for state in _at(job, 2).states(UID)}

    assert described == {
        "window-contents": ("reducing", "TimeWindow"),
        "_timers/event_window-timers": ("timer", "TimeWindow"),
        "_timers/processing_window-timers": ("timer", "TimeWindow"),
    }


def test_timers_of_windows_have_a_column_for_the_window(job: LocalJob) -> None:
    timers = _at(job, 2).timers(UID)

    assert timers.schema.names == ["key", "window", "timestamp", "time_domain", "key_group"]
    assert timers.get("ada") == [("event time", 59_999, FIRST), ("event time", 119_999, SECOND)]
    assert (("bob", FIRST, "event time"), 59_999) in list(timers)
    table = timers.to_arrow()
    assert (table.num_rows, timers.count()) == (3, 3)
    assert {(row["key"], row["window"]["end"], row["timestamp"]) for row in table.to_pylist()} == {
        ("ada", 60_000, 59_999),
        ("ada", 120_000, 119_999),
        ("bob", 60_000, 59_999),
    }
    assert list(json_rows(timers.of_key("bob")))[-1] == {
        "key": "bob",
        "window": {"start": 0, "end": 60_000},
        "timestamp": 59_999,
        "time_domain": "event time",
    }


def test_a_difference_is_by_key_and_window(job: LocalJob) -> None:
    [found] = diff(_at(job, 2), _at(job, 3), UID, "window-contents")

    assert (found.added, found.changed, found.removed, found.unchanged) == (1, 0, 0, 3)
    [example] = found.examples
    assert (example.what, example.key) == ("added", ("bob", SECOND))
    assert json_example(example, found.content)["key"] == ["bob", {"start": 60_000, "end": 120_000}]


def test_sessions_show_their_windows_and_where_the_contents_are_kept(backend: KeyedStateBackend) -> None:
    job = WindowedJob(assigner=EventTimeSessionWindows(timedelta(seconds=10)), backend=backend).job()
    job.run()

    savepoint = _at(job, 2)
    [kept] = [pair for pair in savepoint.keyed_state(UID, "merging-window-set").get("ada") if pair[0][0] == 50_000]
    session, home = kept
    assert session == (50_000, 71_000)
    assert savepoint.keyed_state(UID, "window-contents").get("ada")[TimeWindow(*home)][1] == 14
    assert ("event time", 70_999, TimeWindow(50_000, 71_000)) in savepoint.timers(UID).get("ada")


def _counted(windows: WindowedStream[Any, Any, Any]) -> DataStream[Any]:
    return windows.trigger(CountTrigger(3)).sum(1)


def test_the_state_of_triggers_is_by_window(backend: KeyedStateBackend) -> None:
    timed = WindowedJob(_counted, backend=backend).job()
    timed.run()
    unending = WindowedJob(_counted, GlobalWindows(), backend=backend).job()
    unending.run()

    assert _at(timed, 1).keyed_state(UID, "count").get("ada") == {FIRST: 1, SECOND: 1}
    assert _at(unending, 1).keyed_state(UID, "count").get("ada") == {GlobalWindow(): 2}


@pytest.mark.parametrize("name", ["window-contents", "timers"])
def test_sparks_data_source_has_the_window_as_a_struct(job: LocalJob, name: str) -> None:
    source = CheckdamDataSource({"path": f"{job.uri}/chk-2", "uid": UID, "state": name})

    schema = source.schema()
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert schema["window"].dataType.simpleString() == "struct<start:bigint,end:bigint>"
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted((row["key"], row["window"]["start"]) for row in rows) == [("ada", 0), ("ada", 60_000), ("bob", 0)]


class _Pairs(ProcessJoinFunction[Any, Any, tuple[str, int]]):
    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Iterator[tuple[str, int]]:
        yield left[0], right[1]


def test_an_interval_join_shows_the_records_of_both_sides_by_time(backend: KeyedStateBackend) -> None:
    def build(env: StreamExecutionEnvironment, clicks: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        watermarks: Any = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(minutes=3), lambda click: click[2])
        timed: Any = clicks.assign_timestamps_and_watermarks(watermarks)
        left, right = (
            each.key_by(lambda click: click[0]) for each in (timed, timed.filter(lambda click: click[1] > 1))
        )
        joined = left.interval_join(right).between(timedelta(0), timedelta(minutes=1))
        joined.process(_Pairs(), output_type=tuple[str, int]).uid("join").print()

    storage = MemoryStorage()
    job = LocalJob(
        build,
        [[("ada", 1, 5_000)], [("ada", 2, 6_000)]],
        storage,
        record_type=Click,
        checkpoints=replace(EVERY_EPOCH, num_retained=9),
    )
    job.run()

    savepoint = _at(job, 2)
    assert savepoint.keyed_state("join", "LEFT_BUFFER").get("ada") == {
        5_000: [("ada", 1, 5_000)],
        6_000: [("ada", 2, 6_000)],
    }
    assert savepoint.keyed_state("join", "RIGHT_BUFFER").get("ada") == {6_000: [("ada", 2, 6_000)]}
    assert ("event time", 65_000) in savepoint.timers("join").get("ada")
