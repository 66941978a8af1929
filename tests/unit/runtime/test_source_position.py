"""Which positions of a checkpoint the sources of a job take up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import CheckpointDamagedError, FormatTooNewError, JobGraphError, StateNotRestorableError
from checkdam.graph.source_uids import source_base
from checkdam.ids import CheckpointId, Epoch, OperatorUid
from checkdam.runtime.source_position import (
    VERSION,
    HeldSource,
    JobSource,
    Outcome,
    SourceChoices,
    SourcePosition,
    SourceStart,
    decode_position,
    encode_position,
    match_sources,
    parse_source_start,
)
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.trouble import Step, Trouble, kill_slot

Found = dict[str, tuple[Outcome, bool]]


def source(uid: str = "", kind: str = "text", place: str = "/in", *, number: int = 1, content: str = "") -> JobSource:
    """A source of the job; without a uid it has the derived one of this number."""
    base = source_base(kind, place)
    derived = base if number == 1 else f"{base}#{number}"
    relations = 0 if kind == "collection" else 1
    return JobSource(0, OperatorUid(uid or derived), "s", kind, place, not relations, not uid, relations, content)


def held(*sources: JobSource) -> SourcePosition:
    """The position of a job that had these sources."""
    lines = [source.held([i] * source.relations, [i] * source.relations) for i, source in enumerate(sources)]
    return SourcePosition(1, {}, [source.kind for source in sources], VERSION, lines)


def matched(
    position: SourcePosition, sources: Sequence[JobSource], choices: SourceChoices | None = None
) -> tuple[Found, dict[str, list[int]]]:
    outcomes, taken = match_sources(position, Epoch(3), sources, choices or SourceChoices())
    return {each.uid: (each.outcome, each.is_refused) for each in outcomes}, {each.uid: each.lines for each in taken}


RESTORED, NEW = (Outcome.RESTORED, False), (Outcome.NEW, False)
REFUSED = (Outcome.REFUSED, True)
A, B = source(place="/a"), source(place="/b")
COLLECTION = source(kind="collection", place="")


def test_sources_are_found_by_uid_in_any_order() -> None:
    found, taken = matched(held(A, B, source("kept")), [source("kept"), B, A])

    assert set(found.values()) == {RESTORED}
    assert taken == {"source:text(/a)": [0], "source:text(/b)": [1], "kept": [2]}


def test_a_derived_uid_that_was_once_given_is_found_when_it_is_derived_again() -> None:
    given = replace(A, is_uid_derived=False)

    found, taken = matched(held(given), [A])

    assert found == {A.uid: RESTORED}
    assert taken == {A.uid: [0]}


def test_a_uid_that_is_given_only_now_takes_the_position_beside_another_reader_that_has_one() -> None:
    found, taken = matched(held(source("first"), source()), [source("first"), source("second")])

    assert found == {"first": RESTORED, "second": RESTORED}
    assert taken == {"first": [0], "second": [1]}


def test_an_added_source_is_new_and_a_removed_one_is_refused_unless_it_may_go() -> None:
    added, _ = matched(held(A), [source("more", place="/more"), A])
    removed, _ = matched(held(A, B), [A])
    dropped, taken = matched(held(A, B), [A], SourceChoices(allow_non_restored_state=True))

    assert added == {"more": NEW, A.uid: RESTORED}
    assert removed[B.uid] == (Outcome.NOT_IN_JOB, True)
    assert dropped[B.uid] == (Outcome.NOT_IN_JOB, False)
    assert taken == {A.uid: [0]}


@pytest.mark.parametrize("now", [source("in", place="/other"), source("in", kind="kafka"), source("in", "collection")])
def test_another_kind_or_place_under_a_known_uid_is_refused_unless_it_begins_anew(now: JobSource) -> None:
    anew = SourceChoices({OperatorUid("in"): SourceStart.EARLIEST})

    assert matched(held(source("in")), [now])[0] == {"in": REFUSED}
    assert matched(held(source("in")), [now], anew) == ({"in": NEW}, {})


def test_a_source_in_another_place_may_go_on_but_not_one_of_another_kind() -> None:
    on = SourceChoices({OperatorUid("in"): SourceStart.RESTORED})

    assert matched(held(source("in")), [source("in", place="/moved")], on) == ({"in": RESTORED}, {"in": [0]})
    assert matched(held(source("in")), [source("in", kind="kafka")], on)[0] == {"in": REFUSED}


def test_a_source_that_is_given_a_uid_keeps_its_position() -> None:
    assert matched(held(A, B), [source("b", place="/b"), A])[1] == {"b": [1], A.uid: [0]}


def test_a_collection_that_is_given_a_uid_is_not_taken_for_one_that_was_read() -> None:
    found, _ = matched(held(COLLECTION), [source("new", "collection", "")])

    assert found == {"new": NEW, COLLECTION.uid: (Outcome.NOT_IN_JOB, True)}


def test_which_of_several_alike_is_meant_is_not_guessed() -> None:
    two = [COLLECTION, source(kind="collection", place="", number=2)]

    assert matched(held(*two), two)[0] == {each.uid: RESTORED for each in two}
    assert matched(held(COLLECTION), two)[0] == {each.uid: REFUSED for each in two}
    assert matched(held(*two), [COLLECTION])[0] == {COLLECTION.uid: REFUSED}


def test_collections_without_uid_are_told_apart_by_what_they_hold() -> None:
    old = source(kind="collection", place="", content="x")
    added = [
        source(kind="collection", place="", content="y"),
        source(kind="collection", place="", content="x", number=2),
    ]

    found, taken = matched(held(old), added)
    gone, _ = match_sources(held(*added), Epoch(3), [old], SourceChoices())

    assert found == {added[0].uid: NEW, added[1].uid: RESTORED}
    assert taken.keys() == {added[1].uid}
    assert [(each.outcome, each.is_refused) for each in gone] == [RESTORED, (Outcome.NOT_IN_JOB, True)]
    assert matched(held(old), [replace(old, content="changed")])[0] == {old.uid: RESTORED}


def test_a_derived_uid_can_be_given_to_tell_which_of_several_alike_is_meant() -> None:
    named = source(COLLECTION.uid, "collection", "")
    found, _ = matched(held(COLLECTION), [source(kind="collection", place="", number=2), named])

    assert found == {"source:collection#2": NEW, COLLECTION.uid: RESTORED}


def test_a_dataframe_of_another_number_of_streams_is_refused() -> None:
    position = SourcePosition(1, {}, [], VERSION, [HeldSource("in", "text", "/in", [0, 1], [0, 1])])

    assert matched(position, [source("in")])[0] == {"in": REFUSED}


OLD = SourcePosition(5, {}, ["collection", "text", "kafka"])


def test_a_position_without_uids_is_taken_up_by_order() -> None:
    sources = [source("c", "collection", ""), A, source("k", "kafka", "")]

    assert matched(OLD, sources)[1] == {"c": [], A.uid: [0], "k": [1]}


@pytest.mark.parametrize("kinds", [["collection", "text"], ["collection", "kafka", "text"], []])
def test_a_position_without_uids_of_other_sources_is_refused(kinds: list[str]) -> None:
    outcomes, taken = match_sources(OLD, Epoch(3), [source(f"s{kind}", kind) for kind in kinds], SourceChoices())

    assert [each.is_refused for each in outcomes] == [True]
    assert "take a savepoint" in outcomes[0].hint
    assert not taken


def test_a_choice_for_a_source_that_the_job_does_not_have_is_an_error() -> None:
    with pytest.raises(JobGraphError, match='no source with uid "x"') as error:
        matched(held(A), [A], SourceChoices({OperatorUid("x"): SourceStart.EARLIEST}))

    assert A.uid in (error.value.hint or "")


def test_choices_are_made_for_the_checkpoint_that_a_job_starts_from() -> None:
    choices = SourceChoices({OperatorUid("in"): SourceStart.EARLIEST}, until=CheckpointId(4))

    assert choices.for_checkpoint(CheckpointId(4)) is choices
    assert choices.for_checkpoint(CheckpointId(5)) == SourceChoices()


def test_a_choice_is_a_uid_and_a_word() -> None:
    assert parse_source_start("source:text(/a=b)=earliest") == ("source:text(/a=b)", SourceStart.EARLIEST)
    for text in ("in", "in=", "=earliest", "in=latest"):
        with pytest.raises(JobGraphError, match="UID=POSITION"):
            parse_source_start(text)


@pytest.mark.parametrize(
    "data", [b"x", b"\x91" * 100_000, b"\x83\xa5batch\xdd\xff\xff\xff\xff", b"\x81\xa1x" + b"\x91" * 99_999]
)
def test_bytes_that_are_no_position_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamagedError, match="source position"):
        decode_position(data)


def test_two_positions_of_one_uid_and_newer_versions_are_refused() -> None:
    with pytest.raises(CheckpointDamagedError, match="same uid"):
        decode_position(encode_position(held(A, A)))
    with pytest.raises(FormatTooNewError):
        decode_position(encode_position(msgspec.structs.replace(held(A), version=VERSION + 1)))


def test_a_reader_that_knows_no_uids_still_reads_a_position() -> None:
    class Before(msgspec.Struct):
        batch: int
        files: dict[str, bytes]
        sources: list[str]

    assert msgspec.msgpack.decode(encode_position(held(A, B)), type=Before).sources == ["text", "text"]


# ---------------------------------------------------------------------------------------------- jobs


def _job(
    storage: MemoryStorage,
    epochs: list[list[str]],
    *collections: tuple[str, list[str]],
    troubles: Sequence[Trouble] = (),
) -> LocalJob:
    """Counts the words of a script and of collections, which are given with their uids."""

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        also = [environment.from_collection(words).uid(uid) for uid, words in collections]
        words = stream.uid("script").union(*also).map(lambda word: (word, 1), output_type=tuple[str, int])
        words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("count").print()

    return LocalJob(build, epochs, storage, troubles=troubles)


def _counts(job: LocalJob) -> dict[str, int]:
    return {key: count for key, (_, count) in job.state("count").items()}


def test_a_collection_is_read_once_and_one_that_is_added_later_too() -> None:
    storage = MemoryStorage()
    _job(storage, [["a"]], ("old", ["x"])).run()
    added = _job(storage, [["a"], ["b"]], ("new", ["y"]), ("old", ["x"]))

    added.run()
    counted = _counts(added)
    again = _job(storage, [["a"], ["b"], ["c"]], ("old", ["x"]), ("new", ["y"]))
    again.run()

    assert counted == {"a": 1, "b": 1, "x": 1, "y": 1}
    assert _counts(again) == counted | {"c": 1}


def test_a_job_begins_a_source_anew_once_and_not_with_every_failover() -> None:
    storage = MemoryStorage()
    _job(storage, [["a"], ["b"]]).run()
    epochs = [["a"], ["b"], ["c"], ["d"]]
    troubles = [Trouble(Step.BEFORE_EPOCH, kill_slot(0), number=5)]
    second = _job(storage, epochs, troubles=troubles)

    heard = second.run(source_positions={OperatorUid("script"): SourceStart.EARLIEST})

    assert heard.restarts
    assert _counts(second) == {"a": 2, "b": 2, "c": 1, "d": 1}


def test_a_source_that_is_gone_ends_the_job_before_anything_runs() -> None:
    storage = MemoryStorage()
    _job(storage, [["a"]], ("old", ["x"])).run()
    without = _job(storage, [["a"], ["b"]])

    with pytest.raises(StateNotRestorableError, match='source "old": the checkpoint has its position'):
        without.run()
    assert not without.heard.restarts

    without.run(allow_non_restored_state=True)
    assert _counts(without) == {"a": 1, "b": 1, "x": 1}
