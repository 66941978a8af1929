"""What JobMonitor promises: every event shows in the record, and the record stays true over attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.support.word_count import UID, WordCount
from tests.unit.runtime.monitor.watched import Watched, watch

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.settings import JobEnd
from checkdam.config import Configuration
from checkdam.errors import JobFailedError, SlotLostError
from checkdam.ids import CheckpointId, Epoch, JobId
from checkdam.runtime.failures import user_error
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import EpochStats, JobListener
from checkdam.runtime.monitor.job_monitor import MOST_EVENTS, JobMonitor
from checkdam.runtime.monitor.job_records import (
    NEVER,
    CheckpointStatus,
    CheckpointTrouble,
    EndingRecord,
    OperatorRecord,
    RestartRecord,
    SlotRecord,
    SnapshotKind,
)
from checkdam.runtime.monitor.listeners import JointListener
from checkdam.runtime.restart import NoRestart, Restart
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Step, Trouble, kill_slot


def _named(monitor: JobMonitor, name: str) -> OperatorRecord:
    return next(each for each in monitor.record().operators if name in (each.uid, each.name, each.kind))


def test_a_job_is_described_before_anything_has_happened() -> None:
    watched = Watched()

    record = watched.record

    assert (record.id, record.name, record.status) == (watched.job.job_id, "local job", JobStatus.INITIALIZING)
    assert record.timestamps == {JobStatus.INITIALIZING: watched.now}
    assert [(each.kind, each.level, each.parallelism, each.is_stateful) for each in record.operators] == [
        ("source", 0, 2, False),
        ("map", 0, 2, False),
        ("sum", 1, 2, True),
        ("sink", 1, 2, True),
    ]
    assert [[i.ship_strategy for i in each.inputs] for each in record.operators] == [
        [],
        ["FORWARD"],
        ["HASH"],
        ["FORWARD"],
    ]
    assert len({each.vertex_id for each in record.operators}) == 4
    assert all(len(each.vertex_id) == 32 for each in record.operators)


def test_a_record_is_the_same_object_until_something_happens() -> None:
    watched = Watched()
    before = watched.record
    watched.clock.advance(100)
    once_more = watched.record

    watched.monitor.progressed("restoring")

    assert watched.record is not before
    assert watched.record.progress == "restoring"
    assert watched.record is watched.record
    assert once_more.figures == before.figures


def test_the_time_spent_in_each_status_adds_up() -> None:
    watched = Watched()
    for status, seconds in [("CREATED", 2), ("RUNNING", 10), ("RESTARTING", 3), ("RUNNING", 5)]:
        watched.monitor.status_changed(JobStatus(status))
        watched.clock.advance(seconds)

    watched.monitor.status_changed(JobStatus.FINISHED)

    record = watched.record
    assert (record.status, record.ended_at) == (JobStatus.FINISHED, watched.now)
    assert record.spent == {
        JobStatus.INITIALIZING: 0,
        JobStatus.CREATED: 2000,
        JobStatus.RUNNING: 15_000,
        JobStatus.RESTARTING: 3000,
    }


def test_a_job_that_ends_without_a_word_has_the_status_of_its_end() -> None:
    watched = Watched()

    watched.monitor.job_ended(JobEnd.CANCELLED, None)

    assert watched.record.status is JobStatus.CANCELED


def test_every_subtask_of_every_slot_operator_is_told_of_in_a_checkpoint() -> None:
    watched = Watched()
    watched.trigger(1)
    watched.clock.advance(0.4)
    watched.acknowledge(1, 1, sync_seconds=0.002, async_seconds=0.1, new_bytes=70, state_bytes=700)

    [checkpoint] = watched.record.checkpoints

    assert (checkpoint.status, checkpoint.num_subtasks, checkpoint.duration) == (CheckpointStatus.IN_PROGRESS, 4, NEVER)
    summed, sunk = checkpoint.operators
    assert [(each.subtask, each.sync_ms, each.async_ms, each.end_to_end_ms) for each in summed.subtasks] == [
        (1, 2.0, 100.0, 400.0)
    ]
    assert [(each.checkpointed_bytes, each.state_bytes) for each in summed.subtasks] == [(70, 700)]
    assert [(each.subtask, each.state_bytes, each.end_to_end_ms) for each in sunk.subtasks] == [(1, 0, 400.0)]


def test_a_checkpoint_takes_from_its_trigger_to_its_last_acknowledgement() -> None:
    watched = Watched()
    watched.trigger(1)
    for subtask in range(watched.job.plan.slots):
        watched.clock.advance(0.0405)
        watched.acknowledge(1, subtask)
    acknowledged_at = watched.now
    watched.clock.advance(0.5)  # metadata is written, output published

    watched.complete(1)

    [checkpoint] = watched.record.checkpoints
    assert (checkpoint.end_to_end, checkpoint.duration) == (81, 81.0)
    assert checkpoint.last_ack == checkpoint.triggered_at + checkpoint.end_to_end == acknowledged_at
    assert checkpoint.finished_at == acknowledged_at  # as in its metadata


def test_a_completed_checkpoint_has_its_place_and_the_operators_their_size() -> None:
    watched = Watched()

    watched.checkpoint(1)

    record = watched.record
    [checkpoint] = record.checkpoints
    assert (checkpoint.status, checkpoint.path) == (CheckpointStatus.COMPLETED, "file:///kept/chk-1")
    assert (checkpoint.checkpointed_bytes, checkpoint.state_bytes, checkpoint.metadata_bytes) == (90, 900, 40)
    assert checkpoint.finished_at == watched.now
    assert {each.operator: each.state_bytes for each in record.figures} == {0: 0, 1: 0, 2: 900, 3: 0}


def test_counts_tell_of_all_checkpoints_though_the_history_forgets() -> None:
    watched = Watched(Configuration().with_value("web.checkpoints.history", 3))
    for number in range(1, 11):
        watched.checkpoint(number)
    watched.trigger(11)
    watched.monitor.checkpoint_failed(CheckpointId(11), "too slow")
    watched.trigger(12)

    record = watched.record

    assert [each.id for each in record.checkpoints] == [12, 11, 10]
    counts = record.checkpoint_counts
    assert (counts.total, counts.completed, counts.failed, counts.in_progress) == (12, 10, 1, 1)
    assert record.checkpoints[1].failure == "too slow"


def test_the_newest_completed_checkpoint_outlives_failures_that_fill_the_history() -> None:
    watched = Watched(Configuration().with_value("web.checkpoints.history", 3))
    watched.checkpoint(1)
    for number in range(2, 8):
        watched.trigger(number)
        watched.monitor.checkpoint_failed(CheckpointId(number), "no space")

    assert [each.id for each in watched.record.checkpoints] == [7, 6, 1]


def test_a_savepoint_is_in_the_history_and_stays_among_the_savepoints() -> None:
    watched = Watched(Configuration().with_value("web.checkpoints.history", 1))
    watched.checkpoint(1, SnapshotKind.SAVEPOINT)
    in_history = watched.record.checkpoints[0]
    watched.checkpoint(2)

    record = watched.record

    assert in_history.kind is SnapshotKind.SAVEPOINT
    assert [each.id for each in record.checkpoints] == [2]
    assert [(each.id, each.path) for each in record.savepoints] == [(1, "file:///kept/savepoint-c0ffee-1")]


def test_the_size_of_an_operator_is_that_of_checkpoints_and_not_of_a_savepoint_between_them() -> None:
    watched = Watched()
    watched.checkpoint(1)
    watched.trigger(2, SnapshotKind.SAVEPOINT)
    for subtask in range(2):
        watched.acknowledge(2, subtask, new_bytes=7, state_bytes=7)
    watched.complete(2, SnapshotKind.SAVEPOINT)

    assert {each.operator: each.state_bytes for each in watched.record.figures} == {0: 0, 1: 0, 2: 900, 3: 0}


def test_discarded_checkpoints_are_marked_and_kept_in_the_history() -> None:
    watched = Watched()
    watched.checkpoint(1)
    watched.checkpoint(2)

    watched.monitor.checkpoints_discarded([CheckpointId(1)])

    assert [(each.id, each.is_discarded) for each in watched.record.checkpoints] == [(2, False), (1, True)]


def test_a_failure_fails_what_was_in_progress_and_counts_a_restart() -> None:
    watched = Watched()
    watched.trigger(1)

    watched.monitor.restarting(SlotLostError("slot 1 is gone"), Restart(timedelta(seconds=1)))

    record = watched.record
    assert record.restarts == 1
    assert [(each.name, each.message, each.at) for each in record.exceptions] == [
        ("SlotLostError", "slot 1 is gone", watched.now)
    ]
    assert record.checkpoints[0].status is CheckpointStatus.FAILED
    assert record.checkpoint_counts.in_progress == 0


def test_the_users_own_frames_come_first_and_their_exception_gives_the_name() -> None:
    watched = Watched()
    try:
        raise ValueError("no such word")
    except ValueError as cause:
        failure = user_error("sum", ("a", 1), cause)

    watched.monitor.failed(failure)

    [told] = watched.record.exceptions
    assert (told.name, told.task) == ("ValueError", "sum")
    assert told.stacktrace.startswith("Traceback (most recent call last):")
    assert told.stacktrace.index("test_monitor.py") < told.stacktrace.index('operator "sum" failed on record')
    assert watched.record.restarts == 0


def test_a_failure_of_the_users_code_in_a_slot_tells_which_slot_that_was() -> None:
    def reject(word: str) -> str:
        if word == "bad":
            raise ValueError(word)
        return word

    def build(environment: StreamExecutionEnvironment, words: DataStream[Any]) -> None:
        words.key_by(lambda word: word).reduce(lambda one, other: one).uid("r").map(reject).name("reject").print()

    job = LocalJob(build, [["good", "bad"]], MemoryStorage(), restart=NoRestart())
    monitor = watch(job)

    with pytest.raises(JobFailedError):
        job.run()

    [failure] = monitor.record().exceptions
    slots = {slot.subtask: f"{slot.host}:{slot.pid}" for slot in monitor.record().slots}
    assert failure.task == "reject"
    assert failure.subtask is not None
    assert failure.slot == slots[failure.subtask]


def test_a_failure_that_names_a_file_that_is_no_utf8_can_be_archived() -> None:
    watched = Watched()

    watched.monitor.failed(user_error("map", "x", OSError("cannot open caf\udce9 in s3://key:xyzzy@bucket")))

    [failure] = watched.record.exceptions
    assert b"caf\\\\udce9" in msgspec.json.encode(watched.record)
    assert "xyzzy" not in failure.message + failure.stacktrace


def test_failures_are_kept_newest_first_up_to_their_number() -> None:
    watched = Watched(Configuration().with_value("web.exception-history-size", 2))
    for number in range(4):
        watched.monitor.restarting(JobFailedError(f"failure {number}"), Restart(timedelta(0)))

    assert [each.message for each in watched.record.exceptions] == ["failure 3", "failure 2"]
    assert watched.record.restarts == 4


def test_a_restore_has_its_checkpoint_and_lasts_until_the_job_runs() -> None:
    watched = Watched()
    watched.monitor.restored("file:///kept/chk-41", Epoch(7))
    watched.clock.advance(1.5)
    watched.monitor.status_changed(JobStatus.RUNNING)
    watched.clock.advance(60)

    restored = watched.record.restored

    assert restored is not None
    assert (restored.checkpoint_id, restored.is_savepoint, restored.duration) == (41, False, 1500.0)
    assert watched.record.checkpoint_counts.restored == 1
    assert watched.record.epoch == 7


def test_a_rescale_brings_the_new_plan_and_its_own_history() -> None:
    watched = Watched()
    wider = WordCount([["a"]]).job(parallelism=4).job().plan
    watched.monitor.rescaling(4)
    watched.clock.advance(2)

    watched.monitor.replanned(wider)
    watched.monitor.slots_started([SlotRecord(i, "here", "", 100 + i, watched.now) for i in range(4)])
    watched.monitor.rescaled(4, None)
    watched.trigger(1)

    record = watched.record
    assert (record.parallelism, len(record.slots), record.operators[2].parallelism) == (4, 4, 4)
    [rescale] = record.rescales
    assert (rescale.from_parallelism, rescale.to_parallelism, rescale.failure) == (2, 4, None)
    assert rescale.ended_at - rescale.started_at == 2000
    assert record.checkpoints[0].num_subtasks == 8
    assert len(record.figures[2].subtasks) == 4


def test_a_refused_rescale_tells_why() -> None:
    watched = Watched()
    watched.monitor.rescaling(4)

    watched.monitor.rescaled(2, JobFailedError("no checkpoint"))

    assert (watched.record.rescales[0].failure, watched.record.parallelism) == ("no checkpoint", 2)


def test_secrets_are_masked_and_the_rest_is_told() -> None:
    configuration = Configuration.load(
        overrides={
            "spark.hadoop.fs.s3a.secret.key": "xyzzy",
            "spark.my.password": "xyzzy",
            "spark.app.name": "x",
            "execution.checkpointing.timeout": "3 s",
        }
    )

    told = Watched(configuration).record.settings.configuration

    assert "xyzzy" not in str(told)
    assert told["spark.app.name"] == "x"
    assert told["execution.checkpointing.timeout"] == "3000 ms"


# ---------------------------------------------------------------------------------------------- of a real job


def test_a_job_that_ran_tells_what_each_operator_did() -> None:
    job = WordCount([["a", "b", "a"], ["c", "c"]]).job()
    monitor = watch(job)

    job.run()

    record = monitor.record()
    figures = {each.operator: each for each in record.figures}
    by_kind = {each.kind: figures[each.id] for each in record.operators}

    def total(kind: str, field: str) -> Any:
        return sum(getattr(each, field) for each in by_kind[kind].subtasks)

    assert [total(kind, "records_out") for kind in ("source", "map", "sum")] == [5, 5, 5]
    assert [total(kind, "records_in") for kind in ("source", "map", "sum", "sink")] == [0, 5, 5, 5]
    assert total("sum", "entries") == 3
    assert total("sum", "bytes_in") > 0
    assert total("sum", "bytes_in") == total("map", "bytes_out")
    assert 0 < total("sum", "busy_ms") < 10_000
    assert by_kind["sum"].state_bytes > 0
    assert [(each.records, each.keys) for each in record.epochs] == [(3, 2), (2, 3)]
    assert (sum(each.epochs for each in record.series), round(sum(each.records for each in record.series))) == (2, 5)
    assert sum(each.checkpoints for each in record.series) == 2
    assert all(slot.memory > 1_000_000 for slot in record.slots)


def test_checkpoints_of_a_real_job_add_up_by_subtask() -> None:
    job = WordCount([["a", "b", "a"], ["c", "c"]]).job()
    monitor = watch(job)

    job.run()

    newest = monitor.record().checkpoints[0]
    count = _named(monitor, UID)
    parts = next(each.subtasks for each in newest.operators if each.operator == count.id)
    assert newest.status is CheckpointStatus.COMPLETED
    assert [each.subtask for each in parts] == [0, 1]
    assert sum(each.state_bytes for each in parts) > 0
    assert monitor.record().checkpoint_counts.completed == 2


def test_counts_begin_anew_with_an_attempt_and_epochs_go_on() -> None:
    words = WordCount([["a", "b"], ["a"], ["b"]])
    job = words.job(troubles=[Trouble(Step.EPOCH_DONE, kill_slot(), number=2)])
    monitor = watch(job)

    job.run()

    record = monitor.record()
    count = _named(monitor, UID)
    figures = next(each for each in record.figures if each.operator == count.id)
    assert record.restarts == 1
    assert len(record.exceptions) == 1
    assert sum(each.records_in for each in figures.subtasks) < 4
    assert record.restored is not None
    assert len(record.epochs) >= 3


class RefusedError(RuntimeError):
    pass


def _refuse(word: str) -> str:
    raise RefusedError(word)


def test_a_job_that_fails_for_good_tells_of_its_failure() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.key_by(lambda word: word).map(_refuse).print()

    job = LocalJob(build, [["a"]], MemoryStorage(), record_type=str)
    monitor = watch(job)

    with pytest.raises(JobFailedError):
        job.run()

    assert monitor.record().exceptions[0].name == "RefusedError"


def test_a_watcher_that_raises_stops_neither_the_others_nor_the_job() -> None:
    class Broken(JobListener):
        def job_started(self, job_id: JobId, name: str, slots: int) -> None:
            raise RuntimeError("bug")

        def epoch_ended(self, stats: EpochStats) -> None:
            raise RuntimeError("bug")

    class Counts(JobListener):
        heard = 0

        def job_started(self, job_id: JobId, name: str, slots: int) -> None:
            self.heard += 1

    last = Counts()

    JointListener(JobListener(), Broken(), last).job_started(JobId("0" * 32), "job", 2)

    assert last.heard == 1
    with pytest.raises(RuntimeError, match="bug"):
        JointListener(Broken()).epoch_ended(EpochStats(Epoch(0), 0, 0.0))


def test_the_latest_restart_tells_why_which_attempt_and_when() -> None:
    watched = Watched()
    watched.monitor.restarting(SlotLostError("slot 0 is gone"), Restart(timedelta(seconds=1), 1, 3))
    watched.clock.advance(60)

    watched.monitor.restarting(JobFailedError("bad word\nlong story"), Restart(timedelta(seconds=2), 2, 3))

    assert watched.record.restart == RestartRecord(2, 3, "bad word", failed_at=watched.now, next_at=watched.now + 2000)


def test_checkpoints_that_fail_in_a_row_are_counted_until_one_completes() -> None:
    watched = Watched()
    watched.checkpoint(1)
    for number, reason in ((2, "disk full"), (3, "too slow")):
        watched.clock.advance(10)
        watched.trigger(number)
        watched.monitor.checkpoint_failed(CheckpointId(number), reason)
    failing = watched.record.checkpoint_trouble

    watched.checkpoint(4, SnapshotKind.SAVEPOINT)
    after_savepoint = watched.record.checkpoint_trouble
    watched.checkpoint(5)

    assert failing == CheckpointTrouble(2, watched.now - 10_000, "too slow")
    assert after_savepoint == failing
    assert watched.record.checkpoint_trouble is None


def test_neither_a_failed_savepoint_nor_a_failover_is_a_checkpoint_in_trouble() -> None:
    watched = Watched()
    watched.trigger(1, SnapshotKind.SAVEPOINT)
    watched.monitor.checkpoint_failed(CheckpointId(1), "no such place")
    watched.trigger(2)

    watched.monitor.restarting(SlotLostError("slot 0 is gone"), Restart(timedelta(0)))

    assert watched.record.checkpoint_trouble is None


def test_savepoints_failed_checkpoints_failovers_and_rescales_are_marked() -> None:
    watched = Watched()

    watched.monitor.restarting(SlotLostError("slot 1 is gone"), Restart(timedelta(0)))
    watched.checkpoint(1)
    watched.clock.advance(5)
    watched.checkpoint(2, SnapshotKind.SAVEPOINT)
    watched.monitor.rescaled(3, None)
    watched.monitor.rescaled(500, SlotLostError("too many"))
    watched.monitor.checkpoint_failed(CheckpointId(3), "disk full")

    assert [(event.kind.value, event.text) for event in watched.record.events] == [
        ("FAILOVER", "restarted after a failure: slot 1 is gone"),
        ("SAVEPOINT", "savepoint 2: file:///kept/savepoint-c0ffee-1"),
        ("RESCALE", "rescaled to parallelism 3"),
        ("RESCALE", "not rescaled to parallelism 500: too many"),
        ("CHECKPOINT_FAILED", "checkpoint 3 failed: disk full"),
    ]
    assert watched.record.events[1].at == watched.now


def test_marks_are_bounded_and_hold_no_credentials() -> None:
    watched = Watched()
    for number in range(MOST_EVENTS + 50):
        watched.monitor.checkpoint_failed(CheckpointId(number), f"s3://user:secret@host/{'x' * 1000}")

    events = watched.record.events

    assert len(events) == MOST_EVENTS
    assert max(len(event.text) for event in events) < 400
    assert "secret" not in str(events)


def _command(path: str | None, parallelism: int | None) -> str:
    return f"run -p {parallelism} -s {path}"


def test_an_ended_job_tells_what_it_left_and_how_to_resume_it() -> None:
    watched = Watched()
    watched.monitor.resumed_by(_command)
    watched.checkpoint(1)
    watched.monitor.rescaled(4, None)

    watched.monitor.job_ended(JobEnd.CANCELLED, "s3://me:secret@store/chk-1")

    assert watched.record.ending is not None
    assert "secret" not in str(watched.record.ending)
    assert watched.record.ending.checkpoint is not None
    assert watched.record.ending.resume == f"run -p 4 -s {watched.record.ending.checkpoint}"


def test_a_stopped_job_is_resumed_from_its_savepoint_unless_it_was_drained() -> None:
    stopped, drained = Watched(), Watched()
    for watched in (stopped, drained):
        watched.monitor.resumed_by(_command)
        watched.checkpoint(1, SnapshotKind.SYNC_SAVEPOINT)
    drained.monitor.drained("file:///kept/savepoint-c0ffee-1")

    for watched in (stopped, drained):
        watched.monitor.job_ended(JobEnd.FINISHED, None)

    savepoint = "file:///kept/savepoint-c0ffee-1"
    assert stopped.record.ending == EndingRecord(
        savepoint, None, is_drained=False, resume=f"run -p None -s {savepoint}"
    )
    assert drained.record.ending == EndingRecord(savepoint, None, is_drained=True, resume=None)
