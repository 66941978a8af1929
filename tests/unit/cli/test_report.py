from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from checkdam.checkpoint.settings import JobEnd
from checkdam.cli.report import LiveReporter, LogReporter, PlainReporter
from checkdam.connectors.contract import Withdrawn
from checkdam.errors import CheckpointDamagedError, FencedError, SlotLostError, StorageError, UserFunctionError
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats
from checkdam.runtime.monitor.job_records import SlotRecord, SnapshotKind
from checkdam.runtime.restart import Restart
from checkdam.state.state_count import StateCount
from checkdam.testing import ManualClock

CHECKPOINT = CheckpointStats(
    checkpoint_id=CheckpointId(4),
    epoch=Epoch(12),
    path="file:///ck/j/chk-4",
    seconds=0.08,
    sync_seconds=0.01,
    async_seconds=0.05,
    state_bytes=1_250_000,
    new_bytes=12_300,
)

SAVEPOINT = replace(CHECKPOINT, path="/sp/savepoint-j", kind=SnapshotKind.SAVEPOINT)


def _resume(path: str | None, rescaled_to: int | None) -> str:
    parallelism = "" if rescaled_to is None else f"-p {rescaled_to} "
    return f"checkdam run {parallelism}job.py {'--resume latest' if path is None else f'-s {path}'}"


def test_a_log_tells_the_whole_story_in_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter(resume=_resume, clock=ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))

    damage = CheckpointDamagedError("its checksum does not match", hint="Try another.")
    reporter.checkpoint_skipped("file:///ck/j/chk-5", damage)
    reporter.checkpoint_skipped("file:///ck/j/chk-5", damage)  # told once
    reporter.output_withdrawn(OperatorUid("out"), Withdrawn("file:///out/.x", ("part-1", "part-2"), ("part-3",)))
    reporter.output_missing("file:///ck/j/chk-3", [f"file:///out/part-{n}" for n in range(12)])
    reporter.serving("http://localhost:8081")
    reporter.serving("http://localhost:8081")  # told once
    reporter.job_started(JobId("j"), "words", 2)
    reporter.restored("file:///ck/j/chk-3", Epoch(11))
    reporter.progressed("restoring")
    reporter.progressed(None)
    reporter.printed(["('a', 1)", "('b', 1)"])
    reporter.checkpoint_completed(CHECKPOINT)
    reporter.checkpoint_failed(CheckpointId(5), "it timed out")
    reporter.checkpoint_completed(SAVEPOINT)
    reporter.rescaled(4, None)
    reporter.rescaled(5, SlotLostError("slot 1 is gone"))
    reporter.restarting(SlotLostError("slot 1 is gone"), Restart(timedelta(seconds=1)))
    reporter.last_checkpoint_missed("slot 1 is gone")
    reporter.job_ended(JobEnd.CANCELLED, "file:///ck/j/chk-4")

    said = capsys.readouterr()
    assert said.out == "('a', 1)\n('b', 1)\n"
    assert said.err.splitlines() == [
        f"2026-01-02T03:04:05Z {line}"
        for line in (
            "WARNING: checkpoint file:///ck/j/chk-5 is passed over for an older one: its checksum does not match;"
            " all that came since the older one is processed again: part files published since are withdrawn first,"
            " other output is repeated",
            'WARNING: sink "out": 2 published files are withdrawn, now in file:///out/.x;'
            " no longer there, so that their records are seen again: part-3",
            "WARNING: output that file:///ck/j/chk-3 covers is not there; unless a reader has taken it, it is lost: "
            + ", ".join(f"file:///out/part-{n}" for n in range(10))
            + " and 2 more",
            "web page and REST: http://localhost:8081",
            'job "words" started: id j, 2 slots',
            "restoring",
            "restored file:///ck/j/chk-3, continuing after epoch 11",
            "checkpoint 4 completed: epoch 12, 1.3 MB (12.3 kB new), 80 ms, file:///ck/j/chk-4",
            "WARNING: checkpoint 5 failed: it timed out",
            "savepoint 4 completed: epoch 12, 1.3 MB (12.3 kB new), 80 ms, /sp/savepoint-j",
            "rescaled: running with parallelism 4",
            "WARNING: not rescaled to parallelism 5: slot 1 is gone",
            "WARNING: slot 1 is gone; restarting in 1.0 s (attempt 1)",
            "WARNING: no last checkpoint was taken: slot 1 is gone",
            "job cancelled",
            "resume with: checkdam run -p 4 job.py -s file:///ck/j/chk-4",
        )
    ]


def test_settings_without_effect_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter(resume=_resume, clock=ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))

    reporter.settings_without_effect([f"jobmanager.{n}" for n in range(12)], "Spark runs the job")

    (line,) = capsys.readouterr().err.splitlines()
    assert "jobmanager.9 and 2 more have no effect: Spark runs the job" in line


def test_a_cancel_says_what_it_deletes(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter(resume=_resume, clock=ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))

    reporter.checkpoints_deleted([CheckpointId(3), CheckpointId(4)], "file:///ck/j", "DELETE_ON_CANCELLATION")
    reporter.job_ended(JobEnd.CANCELLED, None)

    assert capsys.readouterr().err.splitlines() == [
        "2026-01-02T03:04:05Z 2 checkpoints in file:///ck/j deleted (retention DELETE_ON_CANCELLATION)",
        "2026-01-02T03:04:05Z job cancelled",
    ]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (
            "file:///ck/j/chk-4",
            ["job suspended at checkpoint 4", "resume with: checkdam run job.py --resume latest"],
        ),
        (None, ["job suspended: no checkpoint was completed, so there is nothing to resume from"]),
    ],
)
def test_a_suspended_job_says_how_to_go_on_as_the_same_job(
    last: str | None, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = PlainReporter(resume=_resume, clock=ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))

    reporter.job_ended(JobEnd.SUSPENDED, last)

    assert capsys.readouterr().err.splitlines() == [f"2026-01-02T03:04:05Z {line}" for line in told]


def test_a_suspended_job_says_that_checkpoints_in_memory_end_with_the_driver(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reporter = PlainReporter(resume=_resume, clock=ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)))

    reporter.checkpoint_completed(replace(CHECKPOINT, path="memory://jobmanager/j/chk-4"))
    reporter.checkpoint_completed(SAVEPOINT)
    reporter.job_ended(JobEnd.SUSPENDED, None)

    assert capsys.readouterr().err.splitlines()[-1] == (
        "2026-01-02T03:04:05Z job suspended: checkpoints in the driver's memory are lost with it, so there is nothing "
        "to resume from"
    )


STOPPED = replace(SAVEPOINT, path="/sp/savepoint-stop", kind=SnapshotKind.SYNC_SAVEPOINT)


@pytest.mark.parametrize("kept", [None, CHECKPOINT.path])
def test_a_job_that_was_cancelled_with_a_savepoint_is_resumed_from_it(
    kept: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoint_completed(CHECKPOINT)
    reporter.checkpoint_completed(SAVEPOINT)
    reporter.job_ended(JobEnd.CANCELLED, kept)

    assert capsys.readouterr().err.splitlines()[-1].endswith(f"checkdam run job.py -s {SAVEPOINT.path}")


def test_a_checkpoint_later_than_the_savepoint_is_what_a_cancelled_job_is_resumed_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoint_completed(SAVEPOINT)
    reporter.checkpoint_completed(CHECKPOINT)
    reporter.job_ended(JobEnd.CANCELLED, CHECKPOINT.path)

    assert capsys.readouterr().err.splitlines()[-1].endswith(f"checkdam run job.py -s {CHECKPOINT.path}")


def test_a_job_that_was_stopped_is_resumed_from_its_savepoint(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoint_completed(STOPPED)
    reporter.checkpoint_completed(CHECKPOINT)  # the final one, of the same epoch
    reporter.job_ended(JobEnd.FINISHED, CHECKPOINT.path)

    assert capsys.readouterr().err.splitlines()[-1].endswith("checkdam run job.py -s /sp/savepoint-stop")


def test_a_job_that_went_on_after_a_stop_is_resumed_from_its_last_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoint_completed(STOPPED)
    reporter.restarting(SlotLostError("slot 1 is gone"), Restart(timedelta(seconds=1)))
    reporter.job_ended(JobEnd.FINISHED, CHECKPOINT.path)

    assert capsys.readouterr().err.splitlines()[-1].endswith(f"checkdam run job.py -s {CHECKPOINT.path}")


@pytest.mark.parametrize("end", [JobEnd.CANCELLED, JobEnd.SUSPENDED])
def test_a_rescaled_job_is_resumed_at_its_last_parallelism(capsys: pytest.CaptureFixture[str], end: JobEnd) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.rescaled(3, None)
    reporter.rescaled(5, SlotLostError("slot 1 is gone"))
    reporter.job_ended(end, CHECKPOINT.path)

    assert "resume with: checkdam run -p 3 job.py" in capsys.readouterr().err.splitlines()[-1]


def test_a_drained_job_is_not_offered_to_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoint_completed(STOPPED)
    reporter.drained(STOPPED.path)
    reporter.job_ended(JobEnd.FINISHED, None)

    *_, last = capsys.readouterr().err.splitlines()
    assert last.endswith("event time has ended: the job should not be resumed from its savepoint /sp/savepoint-stop")


def test_long_work_is_told_when_it_begins_and_then_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    reporter = PlainReporter(resume=_resume, clock=clock)

    for done in range(5):
        reporter.progressed(f"savepoint 4: {done} of 4 slots")
        clock.advance(timedelta(seconds=0.75))
    reporter.progressed(None)
    reporter.progressed("restoring")

    told = [line.partition("Z ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == ["savepoint 4: 0 of 4 slots", "savepoint 4: 3 of 4 slots", "restoring"]


def test_a_reader_of_stdout_that_goes_away_does_not_stop_the_job(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    reporter = PlainReporter(resume=_resume)

    with os.fdopen(write_end, "w") as nobody_reads:
        monkeypatch.setattr("sys.stdout", nobody_reads)
        reporter.printed(["first"])
        reporter.printed(["second"])
        monkeypatch.undo()

    assert capfd.readouterr().err.count("standard output is closed") == 1


class _Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> _Seconds:
    return _Seconds()


@pytest.fixture
def live(seconds: _Seconds) -> Iterator[tuple[LiveReporter, Console]]:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    reporter = LiveReporter(console, resume=_resume, monotonic=seconds)
    yield reporter, console
    reporter.close()


def _shown(reporter: LiveReporter) -> str:
    console = Console(width=100, file=io.StringIO())
    with console.capture() as capture:
        console.print(reporter.panel())
    return capture.get()


def test_the_panel_shows_flow_state_and_the_last_checkpoint(
    live: tuple[LiveReporter, Console], seconds: _Seconds
) -> None:
    reporter, _ = live
    reporter.job_started(JobId("j"), "words", 2)

    reporter.epoch_ended(EpochStats(Epoch(11), records=1000, seconds=1.0, held=StateCount(40, 40)))
    seconds.now += 1.0
    reporter.epoch_ended(EpochStats(Epoch(12), records=3000, seconds=1.0, held=StateCount(1234, 1000, is_exact=False)))
    reporter.checkpoint_completed(CHECKPOINT)
    seconds.now += 2.0

    shown = _shown(reporter)
    assert "words · running" in shown
    assert "1,000 records/s" in shown  # 4000 in the 4 seconds since the first epoch began
    assert "≈ 1,234 entries held" in shown
    assert "2.0 s ago, took 80 ms" in shown
    assert "1.3 MB (12.3 kB new)" in shown


def test_the_rate_forgets_what_is_long_ago(live: tuple[LiveReporter, Console], seconds: _Seconds) -> None:
    reporter, _ = live
    reporter.epoch_ended(EpochStats(Epoch(1), records=1_000_000, seconds=1.0, held=StateCount(1, 1)))

    seconds.now += 60.0

    assert " 0 records/s" in _shown(reporter)


def test_restarts_and_failed_checkpoints_stay_in_sight(live: tuple[LiveReporter, Console]) -> None:
    reporter, console = live

    reporter.checkpoint_failed(CheckpointId(1), "it timed out")
    reporter.restarting(SlotLostError("slot 1 is gone"), Restart(timedelta(seconds=1)))

    assert "restarting · 1 restart · 1 failed checkpoint" in _shown(reporter)
    assert isinstance(console.file, io.StringIO)
    assert "slot 1 is gone; restarting in 1.0 s (attempt 1)" in console.file.getvalue()


def test_the_panel_shows_what_takes_long_and_where_the_page_is(live: tuple[LiveReporter, Console]) -> None:
    reporter, _ = live

    reporter.serving("http://localhost:8081")
    reporter.progressed("savepoint 4: 1 of 2 slots")

    assert "savepoint 4: 1 of 2 slots" in _shown(reporter)
    assert "http://localhost:8081 · Ctrl-C cancels" in _shown(reporter)


def test_a_savepoint_scrolls_by_and_leaves_the_last_checkpoint_in_the_panel(live: tuple[LiveReporter, Console]) -> None:
    reporter, console = live

    reporter.checkpoint_completed(CHECKPOINT)
    reporter.checkpoint_completed(replace(SAVEPOINT, checkpoint_id=CheckpointId(9)))

    assert isinstance(console.file, io.StringIO)
    assert "savepoint 9 completed" in console.file.getvalue()
    assert "checkpoint  4" in _shown(reporter)


def test_a_suspended_job_whose_storage_does_not_answer_may_have_a_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reporter = PlainReporter(resume=_resume)

    reporter.checkpoints_unknown(StorageError("file:///ck does not answer"))
    reporter.job_ended(JobEnd.SUSPENDED, None)

    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "job suspended; its checkpoints could not be listed: file:///ck does not answer",
        "when the storage answers, resume with: checkdam run job.py --resume latest",
    ]


def test_a_take_over_is_told_by_the_new_driver_and_the_old_one_does_not_say_how_to_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    new, old = PlainReporter(resume=_resume), PlainReporter(resume=_resume)

    new.taken_over("process 12 on pod-a")
    old.failed(FencedError("process 1 on pod-b has taken over job j"))
    old.job_ended(JobEnd.SUSPENDED, None)

    told = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "WARNING: job taken over from process 12 on pod-a; if that process still runs, it stops by itself",
        "job suspended here: another driver runs it",
    ]


def test_the_log_file_has_every_event_with_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    written: list[tuple[int, str]] = []
    reporter = LogReporter(lambda level, line: written.append((level, line)), resume=_resume)

    reporter.job_started(JobId("j"), "words", 2)
    reporter.status_changed(JobStatus.RUNNING)
    reporter.slots_started([SlotRecord(0, "host", "there", 11, 0)])
    reporter.printed(["1> a"])
    reporter.checkpoint_completed(CHECKPOINT)
    reporter.checkpoint_failed(CheckpointId(5), "it timed out")
    failure = UserFunctionError(
        operator="parse", record="'x'", cause="ValueError: x", user_traceback="  line 7\nValueError: x"
    )
    reporter.restarting(failure, Restart(timedelta(seconds=1)))
    reporter.failed(failure)

    assert [(level, line.partition(":")[0]) for level, line in written] == [
        (logging.INFO, 'job "words" started'),
        (logging.INFO, "status RUNNING"),
        (logging.INFO, "slot 0 runs in process 11 on host"),
        (logging.INFO, "checkpoint 4 completed"),
        (logging.WARNING, "checkpoint 5 failed"),
        (logging.ERROR, "  line 7\nValueError"),
        (logging.WARNING, written[6][1].partition(":")[0]),
        (logging.ERROR, "  line 7\nValueError"),
    ]
    assert capsys.readouterr() == ("", "")
