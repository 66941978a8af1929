from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.word_count import WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.connectors.file_sink import STAGING
from checkdam.errors import CheckpointNotFoundError, JobGraphError, StateNotRestorableError
from checkdam.graph.contexts import ProcessContext
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.graph.operators import MapKind, Operator, TimestampsKind
from checkdam.graph.watermarks import MIN_WATERMARK, WatermarkStrategy
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.checkpoint_assembly import assigner_names
from checkdam.runtime.driver.restore import (
    Restored,
    check_fit,
    find_job,
    keep_max_parallelism,
    max_parallelism_for,
    newest_first,
)
from checkdam.runtime.source_position import SourceChoices
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, OperatorStateHandle, Redistribution
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, Heard, LocalJob
from checkdam.testing.trouble import DriverKilled, Step, Trouble, kill_driver
from checkdam.types.type_info import type_info

UID = OperatorUid("count")
HANDLE = KeyedStateHandle(KeyGroupRange(0, 127), ())
OPERATOR_STATE = OperatorStateHandle((("offsets", Redistribution.SPLIT, (40,)),), b"content")


def restored(*operators: OperatorEntry, max_parallelism: int = 128) -> Restored:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    checkpoint = CompletedCheckpoint(
        CheckpointId(3), JobId("a" * 32), "job", Epoch(7), now, now, 1, max_parallelism, operators
    )
    return Restored(checkpoint, "file:///checkpoints", "a" * 32, claim=True)


def entry(uid: str, *, keyed: bool = False, committables: tuple[bytes, ...] = ()) -> OperatorEntry:
    subtasks = {SubtaskIndex(0): HANDLE} if keyed else {}
    return OperatorEntry(OperatorUid(uid), uid, 1, 128, subtasks, committables)


ALLOWED = SourceChoices(allow_non_restored_state=True, until=CheckpointId(3))
PLAN = WordCount([["a"]]).job().job().plan


def test_a_checkpoint_of_the_same_operators_fits() -> None:
    check_fit(restored(entry("count", keyed=True)), PLAN, SourceChoices())


@pytest.mark.parametrize(
    "stray",
    [
        entry("gone", keyed=True),
        entry("gone", committables=(b"x",)),
        replace(entry("gone"), operator_states={SubtaskIndex(0): OPERATOR_STATE}),
    ],
)
def test_state_of_an_operator_that_is_gone_is_refused_unless_allowed(stray: OperatorEntry) -> None:
    with pytest.raises(StateNotRestorableError, match='chk-3" holds state of operator "gone"'):
        check_fit(restored(stray), PLAN, SourceChoices())

    check_fit(restored(stray), PLAN, ALLOWED)


def test_an_operator_without_any_state_may_be_gone() -> None:
    check_fit(restored(entry("gone")), PLAN, SourceChoices())


def test_another_max_parallelism_of_keyed_state_is_refused_whatever_is_allowed() -> None:
    other = replace(entry("count", keyed=True), max_parallelism=64)

    with pytest.raises(StateNotRestorableError, match='has max parallelism 64 for operator "count", the job 128'):
        check_fit(restored(other), PLAN, ALLOWED)
    check_fit(restored(replace(other, subtasks={})), PLAN, SourceChoices())


def test_an_operator_keeps_the_max_parallelism_of_its_checkpoint_unless_the_job_sets_one() -> None:
    given = restored(replace(entry("count", keyed=True), max_parallelism=64))

    def kept(operators: Sequence[Operator], asked: int | None = None) -> dict[str | None, int | None]:
        return {op.uid: op.max_parallelism for op in keep_max_parallelism(operators, given, asked, 4) if op.uid}

    own = [replace(op, max_parallelism=32) if op.uid == "count" else op for op in PLAN.operators]
    assert kept(PLAN.operators)["count"] == 64
    assert kept(own)["count"] == 32
    assert kept(PLAN.operators, asked=128)["count"] is None
    assert keep_max_parallelism(PLAN.operators, None, None, 4) == list(PLAN.operators)


def test_an_operator_wider_than_its_state_has_key_groups_is_refused_by_name() -> None:
    given = restored(replace(entry("count", keyed=True), max_parallelism=4))
    operators = [replace(op, parallelism=None) for op in PLAN.operators]

    with pytest.raises(JobGraphError, match='parallelism 5 is above the max parallelism 4 of operator "count"'):
        keep_max_parallelism(operators, given, None, 5)


def test_max_parallelism_is_what_the_job_asks_for_else_that_of_its_checkpoint() -> None:
    assert max_parallelism_for(None, None, 4) is None
    assert max_parallelism_for(None, 32, 4) == 32
    assert max_parallelism_for(restored(max_parallelism=64), None, 4) == 64
    assert max_parallelism_for(restored(max_parallelism=64), 128, 4) == 128


def test_more_slots_than_the_checkpoint_has_key_groups_is_refused() -> None:
    with pytest.raises(JobGraphError, match="above the max parallelism 4 of the checkpoint"):
        max_parallelism_for(restored(max_parallelism=4), None, 5)


def test_a_restored_checkpoint_knows_its_path_its_state_and_its_output() -> None:
    given = restored(entry("count", keyed=True), entry("out", committables=(b"part",)))

    assert given.path == f"file:///checkpoints/{'a' * 32}/chk-3"
    assert given.point().keyed == {UID: (HANDLE,)}
    assert given.committables(OperatorUid("out")) == (b"part",)
    assert given.committables(UID) == ()


def test_operator_state_and_finished_subtasks_are_told_by_old_subtask() -> None:
    numbers = OperatorUid("numbers")
    given = restored(
        OperatorEntry(
            numbers,
            "Numbers",
            3,
            128,
            operator_states={SubtaskIndex(1): OPERATOR_STATE},
            finished=frozenset({SubtaskIndex(0)}),
        ),
        OperatorEntry(OperatorUid("done"), "", 1, 128, finished=frozenset({SubtaskIndex(0)})),
    )

    point = given.point()

    assert point.operator == {numbers: (None, OPERATOR_STATE, None)}
    assert [point.had_finished(numbers, SubtaskIndex(subtask), 3) for subtask in range(3)] == [True, False, False]
    assert not any(point.had_finished(numbers, SubtaskIndex(subtask), 2) for subtask in range(2))
    assert all(point.had_finished(OperatorUid("done"), SubtaskIndex(subtask), 2) for subtask in range(2))
    assert not point.had_finished(UID, SubtaskIndex(0), 1)


def test_an_assigner_is_known_by_its_uid_or_by_its_nearest_neighbours_that_have_one() -> None:
    def operator(number: int, uid: str | None, *inputs: int, assigns: bool = False) -> Operator:
        strategy = WatermarkStrategy.for_monotonous_timestamps(int)
        kind = TimestampsKind(strategy) if assigns else MapKind(int)
        return Operator(number, "", kind, inputs, type_info(int), uid=OperatorUid(uid) if uid else None)

    def named(*operators: Operator) -> dict[int, str]:
        return assigner_names(replace(PLAN, operators=operators))

    source, other = operator(0, None), operator(1, "other")
    one, two = operator(2, None, 0, assigns=True), operator(3, None, 1, assigns=True)
    assert named(source, replace(one, uid=OperatorUid("clicks"))) == {2: "clicks"}
    assert named(source, one, operator(4, None, 2), operator(5, "sum", 4)) == {2: "before sum"}
    assert named(source, one, operator(4, "near", 2), operator(5, "far", 4)) == {2: "before near"}
    assert named(other, two) == {3: "behind other"}
    assert named(source, one) == {}
    assert named(source, one, operator(4, "b", 2), operator(5, "a", 2)) == {2: "before a, b"}
    assert named(source, other, one, two, operator(4, "sum", 2, 3)) == {2: "before sum, 1 of 2", 3: "behind other"}
    assert named(other, two, operator(4, None, 1, assigns=True)) == {
        3: "behind other, 1 of 2",
        4: "behind other, 2 of 2",
    }


class Watermark(KeyedProcessFunction):
    def process_element(self, value: tuple[str, int], ctx: ProcessContext) -> Iterator[tuple[str, int]]:
        yield value[0], ctx.timer_service.current_watermark


def test_an_assigner_added_in_front_takes_nothing_from_one_that_was_there() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any], *uids: str) -> None:
        by_time = WatermarkStrategy.for_monotonous_timestamps(lambda event: event[1])
        for uid in uids:
            keyed = stream.assign_timestamps_and_watermarks(by_time).key_by(0, key_type=str)
            keyed.process(Watermark(), output_type=tuple[str, int]).uid(uid).print(uid)

    storage = MemoryStorage()
    LocalJob(lambda env, stream: build(env, stream, "old"), [[("a", 1000)]], storage, parallelism=1).run()
    resumed = LocalJob(
        lambda env, stream: build(env, stream, "new", "old"), [[("a", 1000)], [("a", 3)]], storage, parallelism=1
    )

    lines = resumed.run().printed_lines

    assert lines == [f"new> ('a', {MIN_WATERMARK})", "old> ('a', 999)"]


def test_how_far_event_time_had_come_is_found_again_by_uid() -> None:
    def operator(number: int, uid: str | None) -> Operator:
        kind = TimestampsKind(WatermarkStrategy.for_monotonous_timestamps(int))
        return Operator(number, "", kind, (), type_info(int), uid=OperatorUid(uid) if uid else None)

    seen = restored()
    seen = replace(seen, checkpoint=replace(seen.checkpoint, watermarks={OperatorUid("sum"): 30, OperatorUid("x"): 1}))

    plan = replace(PLAN, operators=(operator(3, None), operator(7, "sum"), operator(8, "new")))
    assert seen.watermarks(plan) == {7: 30}


def test_a_checkpoint_with_a_file_missing_is_passed_over_before_any_slot_starts() -> None:
    words = WordCount([["a"], ["a"]])
    words.run(checkpoints=replace(EVERY_EPOCH, num_retained=2))
    store, heard = CheckpointStore(words.storage, JOB_ID), Heard()
    newest, older = store.load(CheckpointId(2)), store.load(CheckpointId(1))
    for file in newest.files() - older.files():
        words.storage.delete(f"{JOB_ID}/{file.path}")

    found = list(newest_first(store, words.storage, JOB_ID, heard))

    assert [each.checkpoint.checkpoint_id for each in found] == [1]
    [(path, reason)] = heard.skipped
    assert path.endswith("chk-2")
    assert "is gone" in str(reason)


def test_after_a_resume_output_that_no_checkpoint_covers_is_gone_at_once() -> None:
    words = WordCount([["a"], ["b"], ["c"]])
    staged: list[int] = []
    look = Trouble(Step.BEFORE_EPOCH, lambda engine, moment: staged.append(len(words.sink.list(STAGING))), number=2)
    with pytest.raises(DriverKilled):
        words.job(troubles=[Trouble(Step.BEFORE_METADATA, kill_driver, number=2)]).run()
    assert len(words.sink.list(STAGING)) == 1

    words.run([look])

    assert staged == [0]


def test_the_job_to_resume_is_found_by_its_name() -> None:
    words = WordCount([["a"]])
    words.run()

    assert find_job(words.storage, "local job") == JOB_ID
    with pytest.raises(CheckpointNotFoundError, match='no checkpoint of job "other"'):
        find_job(words.storage, "other")
    with pytest.raises(CheckpointNotFoundError):
        find_job(MemoryStorage(), "local job")
