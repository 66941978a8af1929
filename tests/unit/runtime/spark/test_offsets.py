"""The offset log of a query: what of it is kept, and how it is laid out again, also for another order of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkdam.errors import CheckpointDamagedError, JobGraphError
from checkdam.ids import OperatorUid
from checkdam.runtime.source_position import VERSION, HeldSource, JobSource, SourcePosition
from checkdam.runtime.spark.offsets import Streams, capture, check_files, lay_out

HEAD = 'v1\n{"batchWatermarkMs":0}\n'
KAFKA = '{"topic":{"0":7}}'
TEXT_AND_KAFKA = [
    JobSource(i, OperatorUid(kind), kind, kind, "", is_static=False, is_uid_derived=False)
    for i, kind in enumerate(("text", "kafka"))
]
HELD = [source.held([i], [i]) for i, source in enumerate(TEXT_AND_KAFKA)]
TWO = Streams(((0,), (1,)))


def query_directory(directory: Path) -> Path:
    """A query over a file source and Kafka that has run batches 0 to 3 and plans the next."""
    files = {"metadata": '{"id":"q"}'}
    for batch in range(4):
        files[f"offsets/{batch}"] = f'{HEAD}{{"logOffset":{batch}}}\n{KAFKA}'
        files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    files |= {"offsets/4": f'{HEAD}{{"logOffset":4}}\n{KAFKA}'}
    files |= {
        f"sources/0/{entry}": f'v1\n{{"path":"file:///in/{entry}"}}' for entry in ("0", "1", "2.compact", "3", "4")
    }
    files |= {"sources/1/0": KAFKA}
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def laid_out(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def position(files: dict[str, bytes], batch: int = 1) -> SourcePosition:
    return SourcePosition(batch, files, ["text", "kafka"], VERSION, HELD)


def captured(directory: Path) -> SourcePosition:
    return capture(query_directory(directory), 3, TEXT_AND_KAFKA, HELD)


def usual(**changed: bytes) -> dict[str, bytes]:
    files = {"metadata": b"{}", "offsets/1": f'{HEAD}{{"logOffset":1}}\n{KAFKA}'.encode(), "commits/1": b"v1\n{}"}
    return files | changed


def test_what_is_captured_is_laid_out_without_what_comes_later(tmp_path: Path) -> None:
    lay_out(captured(tmp_path / "query"), tmp_path / "new", HELD, TWO)

    of_sources = {"sources/0/2.compact", "sources/0/3", "sources/1/0"}
    numbered = {"offsets/2", "offsets/3", "commits/2", "commits/3"}
    assert laid_out(tmp_path / "new").keys() == {"metadata"} | numbered | of_sources


def test_a_source_without_an_offset_has_no_entries(tmp_path: Path) -> None:
    directory = query_directory(tmp_path)
    (directory / "offsets" / "3").write_text(f"{HEAD}-\n{KAFKA}")

    found = capture(directory, 3, TEXT_AND_KAFKA, HELD)

    assert not [name for name in found.files if name.startswith("sources/0/")]


def test_a_source_without_a_position_begins_at_its_start(tmp_path: Path) -> None:
    lay_out(captured(tmp_path / "query"), tmp_path / "new", [None, HELD[1]], TWO)

    found = laid_out(tmp_path / "new")
    assert found["offsets/3"].decode().splitlines()[2:] == ["-", KAFKA]
    assert not [name for name in found if name.startswith("sources/0/")]


def test_lines_and_directories_move_with_their_sources(tmp_path: Path) -> None:
    lay_out(captured(tmp_path / "query"), tmp_path / "new", [None, HELD[1], HELD[0]], Streams(((0,), (1,), (2,))))

    found = laid_out(tmp_path / "new")
    assert found["offsets/2"].decode().splitlines() == [*HEAD.splitlines(), "-", KAFKA, '{"logOffset":2}']
    assert found["offsets/3"].decode().splitlines() == [*HEAD.splitlines(), "-", KAFKA, '{"logOffset":3}']
    assert {name for name in found if name.startswith("sources/")} == {
        "sources/1/0",
        "sources/2/2.compact",
        "sources/2/3",
    }
    assert found["sources/2/3"] == b'v1\n{"path":"file:///in/3"}'


def test_a_query_of_new_sources_alone_begins_with_batch_0(tmp_path: Path) -> None:
    lay_out(captured(tmp_path / "query"), tmp_path / "new", [None, None], TWO)

    assert not (tmp_path / "new").exists()


def test_a_dataframe_that_is_read_twice_has_two_lines_and_one_directory(tmp_path: Path) -> None:
    twice = [HeldSource("one", "text", "", [0], [0]), HeldSource("two", "text", "", [1], [0])]
    files = usual(**{"offsets/1": f'{HEAD}{{"logOffset":1}}\n{{"logOffset":1}}'.encode(), "sources/0/1": b"v1"})

    lay_out(SourcePosition(1, files, [], VERSION, twice), tmp_path, [None, *twice], Streams(((0,), (1,), (1,))))

    found = laid_out(tmp_path)
    assert found["offsets/1"].decode().splitlines()[2:] == ["-", '{"logOffset":1}', '{"logOffset":1}']
    assert found["sources/1/1"] == b"v1"


def test_sources_that_stood_apart_cannot_share_a_dataframe(tmp_path: Path) -> None:
    with pytest.raises(JobGraphError, match="same streaming DataFrame"):
        lay_out(captured(tmp_path / "query"), tmp_path / "new", HELD, Streams(((0,), (0,))))


FOREIGN_NAMES = [
    "/tmp/checkdam-was-here",
    "../outside",
    "offsets/../../outside",
    "sources/0/../../../outside",
    "sources/0/",
    "sources/0/a/b",
    "sources/0/..",
    "sources/0/.hidden",
    "sources/0/2",  # a file source would read the files that a later entry lists
    "sources/0/2.compact",
    "sources/../x",
    "sources/x/1",
    "sources/0/\0",
    "sources/0/" + "x" * 300,
    "offsets/7",  # a batch that Spark would run
    "offsets/01",
    "offsets",
    "metadata/x",
    "state/0/x",
    "",
    ".",
]


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_a_name_that_no_query_directory_has_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointDamagedError, match="source position"):
        lay_out(position(usual(**{name: b"x"})), tmp_path / "a" / "query", HELD, TWO)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    ["-", '{"logOffset":0}', "0", "-1", '{"logOffset":9,"logOffset":0}', '{"logOffset":0} {', '{"logOffset": 9}'],
)
def test_no_spelling_of_an_offset_lets_a_later_entry_in(line: str) -> None:
    offsets = f"{HEAD}{line}\n{KAFKA}".encode()

    with pytest.raises(CheckpointDamagedError, match="sources/0/1"):
        check_files(position(usual(**{"offsets/1": offsets, "sources/0/1": b"v1"})))


@pytest.mark.parametrize(
    "files",
    [
        {"metadata": b"", "sources/0/0": b""},
        {"metadata": b"", "offsets/0": b"", "commits/0": b""},
        {"metadata": b"", "offsets/1": b""},
    ],
    ids=["no offsets", "offsets of another batch", "no commit"],
)
def test_a_position_without_its_batch_is_refused(files: dict[str, bytes]) -> None:
    with pytest.raises(CheckpointDamagedError, match="offsets"):
        check_files(position(files))


def test_offsets_of_fewer_sources_than_are_wanted_are_refused(tmp_path: Path) -> None:
    beyond = HeldSource("text", "text", "", [5], [0])

    with pytest.raises(CheckpointDamagedError, match="2 streams"):
        lay_out(position(usual()), tmp_path, [beyond, HELD[1]], TWO)
