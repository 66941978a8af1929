from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from checkdam.errors import CheckpointDamagedError
from checkdam.runtime.spark.offsets import SourcePosition, capture, decode, lay_out

HEAD = 'v1\n{"batchWatermarkMs":0}\n'
KAFKA = '{"topic":{"0":7}}'


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


def position(files: dict[str, bytes], batch: int = 1) -> bytes:
    return msgspec.msgpack.encode(SourcePosition(batch, files, ["text", "kafka"]))


def usual(**changed: bytes) -> dict[str, bytes]:
    files = {"metadata": b"{}", "offsets/1": f'{HEAD}{{"logOffset":1}}\n{KAFKA}'.encode(), "commits/1": b"v1\n{}"}
    return files | changed


def test_what_is_captured_is_laid_out_without_what_comes_later(tmp_path: Path) -> None:
    captured = capture(query_directory(tmp_path / "query"), 3, ["text", "kafka"])

    lay_out(captured, tmp_path / "new")

    of_sources = {"sources/0/2.compact", "sources/0/3", "sources/1/0"}
    numbered = {"offsets/2", "offsets/3", "commits/2", "commits/3"}
    assert laid_out(tmp_path / "new").keys() == {"metadata"} | numbered | of_sources


def test_a_source_without_an_offset_has_no_entries(tmp_path: Path) -> None:
    directory = query_directory(tmp_path)
    (directory / "offsets" / "3").write_text(f"{HEAD}-\n{KAFKA}")

    assert not [name for name in decode(capture(directory, 3, [])).files if name.startswith("sources/0/")]


def test_forgotten_sources_begin_anew(tmp_path: Path) -> None:
    captured = capture(query_directory(tmp_path / "query"), 3, ["text", "kafka"])

    lay_out(captured, tmp_path / "new", forget={0})

    found = laid_out(tmp_path / "new")
    assert found["offsets/3"].decode().splitlines()[2:] == ["-", KAFKA]
    assert not [name for name in found if name.startswith("sources/0/")]


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
        lay_out(position(usual(**{name: b"x"})), tmp_path / "a" / "query")

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    ["-", '{"logOffset":0}', "0", "-1", '{"logOffset":9,"logOffset":0}', '{"logOffset":0} {', '{"logOffset": 9}'],
)
def test_no_spelling_of_an_offset_lets_a_later_entry_in(line: str) -> None:
    offsets = f"{HEAD}{line}\n{KAFKA}".encode()

    with pytest.raises(CheckpointDamagedError, match="sources/0/1"):
        decode(position(usual(**{"offsets/1": offsets, "sources/0/1": b"v1"})))


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
        decode(position(files))


@pytest.mark.parametrize(
    "data", [b"", b"\x91" * 100_000, b"\x83\xa5batch\xdd\xff\xff\xff\xff", b"\x81\xa1x" + b"\x91" * 99_999]
)
def test_bytes_that_are_no_position_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamagedError):
        decode(data)


def test_offsets_of_fewer_sources_than_are_forgotten_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointDamagedError, match="2 sources"):
        lay_out(position(usual()), tmp_path, forget={5})
