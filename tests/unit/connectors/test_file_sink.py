from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from checkdam.connectors import file_sink
from checkdam.connectors.contract import WriterContext
from checkdam.connectors.file_sink import STAGING, WITHDRAWN, FileCommitter, FileSink, FileWriter
from checkdam.errors import CheckpointDamagedError, FencedError, JobGraphError, StorageError
from checkdam.ids import Attempt, JobId, OperatorUid, SubtaskIndex
from checkdam.storage import Storage, open_storage
from checkdam.testing import MemoryStorage
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
UID = OperatorUid("out")
PAIR = type_info(tuple[str, int])


def writer(
    storage: Storage, format: str = "json", attempt: str = "one", job: JobId = JOB, uid: OperatorUid = UID
) -> FileWriter:
    return FileWriter(storage, format, WriterContext(job, uid, Attempt(attempt), SubtaskIndex(2), 4))


def pairs(*rows: tuple[str, int]) -> Batch:
    return Batch(PAIR, rows=list(rows))


def prepared(storage: Storage, *rows: tuple[str, int], **options: Any) -> tuple[bytes, ...]:
    a_writer = writer(storage, **options)
    a_writer.write(pairs(*rows))
    return a_writer.snapshot()()


def visible(storage: Storage) -> list[str]:
    return [each.path for each in storage.list("") if not each.path.startswith(STAGING)]


def content(storage: Storage, format: str) -> Any:
    [path] = visible(storage)
    data = storage.read(path)
    if format == "parquet":
        return pq.read_table(io.BytesIO(data)).to_pylist()
    return [json.loads(line) for line in data.splitlines()] if format == "json" else data.decode().splitlines()


EXPECTED: dict[str, Any] = {
    "json": [{"f0": "a", "f1": 1}, {"f0": "ü\n", "f1": -2}],
    "parquet": [{"f0": "a", "f1": 1}, {"f0": "ü\n", "f1": -2}],
    "text": ["('a', 1)", "('ü\\n', -2)"],
}


@pytest.mark.parametrize("format", EXPECTED)
def test_a_committed_file_holds_every_record_in_its_format(format: str) -> None:
    storage = MemoryStorage()
    a_writer = writer(storage, format)
    a_writer.write(pairs(("a", 1)))
    a_writer.write(pairs(("ü\n", -2)))

    FileCommitter(storage, JOB, UID).commit(a_writer.snapshot()())

    assert content(storage, format) == EXPECTED[format]
    assert visible(storage)[0].endswith({"text": ".txt"}.get(format, f".{format}"))


@pytest.mark.parametrize(("format", "line"), [("text", "{1, 2}"), ("json", '{"value":[1,2]}')])
def test_records_without_columns_are_written_as_they_are(format: str, line: str) -> None:
    storage = MemoryStorage()
    a_writer = writer(storage, format)
    a_writer.write(Batch(type_info(Any), rows=[{1, 2}]))

    FileCommitter(storage, JOB, UID).commit(a_writer.snapshot()())

    assert storage.read(visible(storage)[0]).decode() == f"{line}\n"


NAIVE = datetime(2024, 5, 1, 12)  # noqa: DTZ001  meant to be naive


@pytest.mark.parametrize(
    ("of", "some", "none"),
    [
        (datetime | None, NAIVE, None),
        (list[datetime], [NAIVE], []),
        (tuple[int, tuple[str, datetime | None]], (1, ("a", NAIVE)), (2, ("b", None))),
    ],
)
def test_batches_without_datetimes_go_into_a_parquet_file_with_naive_ones(of: Any, some: Any, none: Any) -> None:
    for rows in ([none, some], [some, none], [none, none]):
        storage = MemoryStorage()
        a_writer = writer(storage, "parquet")
        for row in rows:
            a_writer.write(Batch(type_info(of), rows=[row]))
        FileCommitter(storage, JOB, UID).commit(a_writer.snapshot()())

        found = content(storage, "parquet")

        assert [str(row).count("datetime.datetime(2024, 5, 1, 12, 0)") for row in found] == [
            int(row is some) for row in rows
        ]


def test_naive_datetimes_and_others_are_refused_in_one_parquet_file(monkeypatch: pytest.MonkeyPatch) -> None:
    aware, none = NAIVE.replace(tzinfo=UTC), None
    monkeypatch.setattr(file_sink, "_MOST_WAITING", 2)
    for values in ([NAIVE, aware], [aware, none, NAIVE], [none, none, NAIVE]):
        a_writer = writer(MemoryStorage(), "parquet")
        *first, last = (Batch(type_info(datetime | None), rows=[value]) for value in values)
        for batch in first:
            a_writer.write(batch)

        with pytest.raises(JobGraphError, match="cannot hold both naive and aware datetimes"):
            a_writer.write(last)


def test_records_without_columns_cannot_be_parquet() -> None:
    with pytest.raises(JobGraphError, match="no columns to write as parquet"):
        writer(MemoryStorage(), "parquet").write(Batch(type_info(Any), rows=[{1, 2}]))


def test_nothing_is_visible_before_the_commit() -> None:
    storage = MemoryStorage()

    prepared(storage, ("a", 1))

    assert visible(storage) == []
    assert len(storage.list(STAGING)) == 1


def test_committing_again_changes_nothing() -> None:
    storage = MemoryStorage()
    committables = prepared(storage, ("a", 1))
    FileCommitter(storage, JOB, UID).commit(committables)
    before = {each.path: storage.read(each.path) for each in storage.list("")}

    FileCommitter(storage, JOB, UID).commit(committables)

    assert {each.path: storage.read(each.path) for each in storage.list("")} == before


def test_what_no_checkpoint_covers_is_removed_and_what_one_covers_stays() -> None:
    storage = MemoryStorage()
    covered = prepared(storage, ("a", 1), attempt="one")
    prepared(storage, ("a", 1), attempt="two")
    theirs = prepared(storage, ("z", 1), attempt="theirs", job=OTHER)
    committer = FileCommitter(storage, JOB, UID)

    committer.abandon_all_but(covered)

    assert len(storage.list(f"{STAGING}/{JOB}")) == 1
    committer.commit(covered)
    FileCommitter(storage, OTHER, UID).commit(theirs)
    assert len(visible(storage)) == 2


def test_between_two_cuts_there_is_one_file_and_none_without_records() -> None:
    storage = MemoryStorage()
    a_writer = writer(storage)
    a_writer.write(pairs(("a", 1)))
    a_writer.write(pairs(("b", 1)))
    first, none = a_writer.snapshot(), a_writer.snapshot()
    a_writer.write(pairs(("c", 1)))
    second = a_writer.snapshot()

    parts = [*first(), *none(), *second()]

    assert len(parts) == len(set(parts)) == 2


def test_a_writer_that_is_closed_drops_what_was_not_cut() -> None:
    storage = MemoryStorage()
    a_writer = writer(storage)
    a_writer.write(pairs(("a", 1)))

    a_writer.close()

    assert storage.list("") == []


def test_closing_the_committer_removes_its_staging_and_leaves_that_of_others() -> None:
    storage = MemoryStorage()
    prepared(storage, ("a", 1))
    prepared(storage, ("z", 1), job=OTHER)

    FileCommitter(storage, JOB, UID).close()

    assert [each.path.split("/")[1] for each in storage.list(STAGING)] == [OTHER]


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(JobGraphError, match="json, parquet, text"):
        FileSink("out", "csv")


def test_a_sink_has_a_uid_of_its_own_by_its_path() -> None:
    assert FileSink("out", "json").default_uid == FileSink("out", "text").default_uid
    assert FileSink("out", "json").default_uid != FileSink("other", "json").default_uid


def test_committing_again_publishes_what_is_not_yet_and_asks_for_nothing_that_a_reader_took_away() -> None:
    storage = MemoryStorage()
    taken, waiting = prepared(storage, ("a", 1)), prepared(storage, ("b", 1), attempt="two")
    committer = FileCommitter(storage, JOB, UID)
    committer.commit(taken)
    [published] = [each.path for each in storage.list("") if not each.path.startswith(STAGING)]
    storage.delete(published)

    committer.commit([*taken, *waiting])

    [left] = storage.list("")
    assert b'"b"' in storage.read(left.path)


def test_what_a_dead_job_prepared_is_forgotten_and_nothing_else() -> None:
    storage = MemoryStorage()
    prepared(storage, ("a", 1))
    prepared(storage, ("z", 1), job=OTHER)

    FileCommitter(storage, JOB, UID).forget(OTHER)

    assert [each.path.split("/")[1] for each in storage.list(STAGING)] == [JOB]


def test_two_sinks_in_one_directory_keep_their_files_apart() -> None:
    storage, other = MemoryStorage(), OperatorUid("other")
    mine, theirs = prepared(storage, ("a", 1)), prepared(storage, ("b", 2), uid=other)

    FileCommitter(storage, JOB, UID).abandon_all_but(mine)
    FileCommitter(storage, JOB, UID).commit(mine)
    FileCommitter(storage, JOB, other).commit(theirs)

    assert sorted(storage.read(path) for path in visible(storage)) == [b'{"f0":"a","f1":1}\n', b'{"f0":"b","f1":2}\n']


def test_a_record_that_json_cannot_hold_is_an_error_that_says_what_to_do() -> None:
    a_writer = writer(MemoryStorage())

    with pytest.raises(JobGraphError, match=r"cannot be written as JSON.*output_type"):
        a_writer.write(Batch(type_info(Any), rows=[object()]))


@pytest.mark.parametrize(
    ("staged", "final"),
    [
        ("/etc/passwd", "part-00000-{mark}-a-000000.json"),
        ("../outside", "outside"),
        (f"{STAGING}/{JOB}/{{mark}}/{{part}}", "/etc/cron.d/job"),
        (f"{STAGING}/{JOB}/{{mark}}/{{part}}", "../{part}"),
        (f"{STAGING}/{JOB}/{{mark}}/{{part}}", "_SUCCESS"),
        (f"{STAGING}/{JOB}/{{mark}}/{{part}}", ".hidden"),
        (f"{STAGING}/{JOB}/{{mark}}/{{part}}", "part-00001-{mark}-a-000000.json"),
        (f"{STAGING}/{JOB}/../{{mark}}/{{part}}", "{part}"),
        (f"{STAGING}/{JOB}/{'0' * 8}/{{part}}", "{part}"),
        ("report.csv", "{part}"),
        (f"{STAGING}/{JOB}/{'0' * 8}/part-00000-{'0' * 8}-a-000000.json", f"part-00000-{'0' * 8}-a-000000.json"),
        ("{part}", "{part}"),
    ],
)
def test_a_committable_that_no_writer_gives_is_refused_and_nothing_moves(staged: str, final: str) -> None:
    storage = MemoryStorage()
    ours = prepared(storage, ("a", 1))
    path = storage.list(STAGING)[0].path
    part, mark = path.rpartition("/")[2], path.split("/")[2]
    storage.write("report.csv", b"theirs")
    before = [each.path for each in storage.list("")]
    crafted = msgspec.msgpack.encode([each.format(mark=mark, part=part) for each in (staged, final)])
    committer = FileCommitter(storage, JOB, UID)

    for act in (
        committer.commit,
        committer.abandon_all_but,
        committer.missing,
        committer.withdraw,
        committer.bring_back,
        committer.close,
    ):
        with pytest.raises(CheckpointDamagedError, match="committable"):
            act([*ours, crafted])

    assert [each.path for each in storage.list("")] == before


@pytest.mark.parametrize(
    "committable",
    [b"", b"\x92\xa1\xff\xa1b", b"\x91" * 100_000, b"\x92\xa1a\xa1b" + b"\x91", b"\x93\xa1a\xa1b" + b"\x91" * 99_999],
)
def test_bytes_that_are_no_committable_are_refused(committable: bytes) -> None:
    with pytest.raises(CheckpointDamagedError, match="committable"):
        FileCommitter(MemoryStorage(), JOB, UID).commit([committable])


def test_prepared_output_that_is_gone_or_cut_short_is_named() -> None:
    storage = MemoryStorage()
    whole, gone, short = (prepared(storage, ("a", 1), attempt=each) for each in ("whole", "gone", "short"))
    committer = FileCommitter(storage, JOB, UID)
    for each in storage.list(STAGING):
        if "-gone-" in each.path:
            storage.delete(each.path)
        elif "-short-" in each.path:
            storage.write(each.path, storage.read(each.path)[:-1])

    missing = committer.missing([*whole, *gone, *short])

    assert [path.rpartition("/")[2].split("-")[3] for path in missing] == ["gone", "short"]


def test_prepared_output_that_another_job_has_published_is_not_missing_unless_it_is_cut_short() -> None:
    storage = MemoryStorage()
    whole, short = (prepared(storage, ("a", 1), attempt=each) for each in ("whole", "short"))
    FileCommitter(storage, OTHER, UID).commit([*whole, *short])
    [path] = [path for path in visible(storage) if "-short-" in path]
    storage.write(path, storage.read(path)[:-1])

    missing = FileCommitter(storage, JOB, UID).missing([*whole, *short])

    assert [path.rpartition("/")[2].split("-")[3] for path in missing] == ["short"]


def test_a_committable_of_a_version_that_recorded_no_size_is_taken_as_it_is() -> None:
    storage = MemoryStorage()
    [committable] = prepared(storage, ("a", 1))
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(committable)[:2])
    committer = FileCommitter(storage, JOB, UID)

    assert committer.missing([older]) == []
    assert committer.commit([older]) == []
    assert len(visible(storage)) == 1


def test_a_file_whose_directory_was_deleted_while_it_was_written_is_not_prepared(tmp_path: Path) -> None:
    a_writer = writer(open_storage(str(tmp_path / "out")))
    a_writer.write(pairs(("a", 1)))
    prepare = a_writer.snapshot()
    shutil.rmtree(tmp_path / "out")

    with pytest.raises(StorageError, match="was deleted while it was written"):
        prepare()


def test_withdrawn_files_are_moved_and_told_whichever_state_a_crash_left_them_in() -> None:
    storage = MemoryStorage()
    visible_one, aside, staged, gone = (
        prepared(storage, ("a", 1), attempt=each) for each in ("visible", "aside", "staged", "gone")
    )
    committer = FileCommitter(storage, JOB, UID)
    committer.commit([*visible_one, *aside, *gone])
    committer.withdraw(aside)
    [taken] = [path for path in visible(storage) if "-gone-" in path]
    storage.delete(taken)

    told = committer.withdraw([*visible_one, *aside, *staged, *gone])

    assert visible(storage) == []
    moved = [each.path for each in storage.list(WITHDRAWN)]
    assert sorted(f"{WITHDRAWN}/{JOB}/{name}" for name in told.moved) == moved
    assert len(moved) == 2
    assert told.gone == (taken,)
    committer.abandon_all_but([])
    committer.close()
    assert [each.path for each in storage.list("")] == moved  # the user's to delete


def test_a_record_that_text_cannot_hold_is_named() -> None:
    a_writer = writer(MemoryStorage(), format="text")

    with pytest.raises(JobGraphError, match=r"half of a surrogate pair: 'caf\\udce9.*replace"):
        a_writer.write(Batch(type_info(str), rows=["good", "caf\udce9"]))


def test_what_its_job_has_withdrawn_is_brought_back_by_another_and_what_is_gone_is_named() -> None:
    storage = MemoryStorage()
    withdrawn, seen, gone = (prepared(storage, ("a", 1), attempt=each) for each in ("withdrawn", "seen", "gone"))
    FileCommitter(storage, JOB, UID).commit([*withdrawn, *seen, *gone])
    before = visible(storage)
    FileCommitter(storage, JOB, UID).withdraw([*withdrawn, *gone])
    [taken] = [each.path for each in storage.list(WITHDRAWN) if "-gone-" in each.path]
    storage.delete(taken)

    lost = FileCommitter(storage, OTHER, UID).bring_back([*withdrawn, *seen, *gone])

    assert [path.rpartition("/")[2] for path in lost] == [taken.rpartition("/")[2]]
    assert visible(storage) == [path for path in before if "-gone-" not in path]


@pytest.mark.parametrize("is_promised", [False, True])
def test_a_replaced_driver_that_is_about_to_publish_cannot_after_the_output_is_withdrawn(is_promised: bool) -> None:
    storage = MemoryStorage()
    committables = prepared(storage, ("a", 1))
    replaced, owner = FileCommitter(storage, JOB, UID), FileCommitter(storage, JOB, UID)

    told = owner.withdraw(committables, committables if is_promised else ())
    lost = replaced.commit(committables)

    assert (told.moved, told.gone) == ((), ())
    assert (len(lost), len(visible(storage))) == ((0, 1) if is_promised else (1, 0))


def test_closing_checks_the_term_behind_each_look_at_what_it_deletes() -> None:
    storage = MemoryStorage()
    prepared(storage, ("z", 1), job=OTHER)

    def refuse() -> None:
        prepared(storage, ("a", 1))  # of the driver that has taken over
        raise FencedError("replaced")

    with pytest.raises(FencedError):
        FileCommitter(storage, JOB, UID).close((), refuse)

    assert len(storage.list(STAGING)) == 2


def test_closing_keeps_only_promised_output_that_is_still_prepared() -> None:
    storage = MemoryStorage()
    promised, published, other = (prepared(storage, ("a", 1), attempt=each) for each in ("promised", "seen", "other"))
    committer = FileCommitter(storage, JOB, UID)
    committer.commit(published)

    assert committer.close([*promised, *published])
    [kept] = storage.list(STAGING)
    assert "-promised-" in kept.path
    committer.commit(promised)
    assert not committer.close([*promised, *published])
    assert len(visible(storage)) == 2
    assert storage.list(STAGING) == []
    assert committer.missing(other)
