"""Source positions: Spark's own offset log, copied into a checkpoint and restored for the query that resumes.

A query directory holds `metadata`, `offsets/<batch>`, `commits/<batch>` and `sources/<i>/…`. To resume after a batch,
Spark needs the offsets and commits of that batch and the one before, and no later source entry. Spark identifies
sources by their order in the query: an entry of the offset log has a line for each stream, and `sources/<i>` are
numbered the same way, so both are rearranged for a query that reads the sources in another order.

A position is not trusted, as its snapshot may have been made elsewhere: it may name only files of these forms, and
nothing that would make Spark repeat a batch or read files that the source has not found itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkdam.errors import JobGraphError
from checkdam.runtime.source_position import VERSION, HeldSource, JobSource, SourcePosition, damaged_position
from checkdam.storage.names import is_plain_name

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
_ENTRY = re.compile(r"(\d{1,18})(\.compact)?", re.ASCII)
_NUMBERED = re.compile(r"(?:offsets|commits)/(\d{1,18})", re.ASCII)
_LOG_OFFSET = re.compile(r'\{"logOffset":(\d{1,18})\}|(\d{1,18})', re.ASCII)
_LINE_END = re.compile("\r\n|\r|\n")
_OF_SOURCE = re.compile(r"sources/(\d{1,4})/(.+)", re.ASCII | re.DOTALL)


def capture(directory: Path, batch: int, sources: Sequence[JobSource], held: Sequence[HeldSource]) -> SourcePosition:
    """Return the position after a batch, while the query may already be planning the next."""
    directories = [each for source in held for each in source.directories]
    return SourcePosition(
        batch, _needed_files(directory, batch, directories), [source.kind for source in sources], VERSION, list(held)
    )


def check_files(position: SourcePosition) -> None:
    """Raise CheckpointDamagedError if the position names files that do not belong in a position."""
    files, batch = position.files, position.batch
    if files and not (batch >= 0 and f"offsets/{batch}" in files):
        raise damaged_position(f"it lacks the offsets of batch {batch}")
    last_entries = _last_entries(files.get(f"offsets/{batch}", b""), _directories(position.held))
    for name in files:
        if not _belongs(name, batch, last_entries):
            raise damaged_position(f"it names the file {name[:200]!r}")
        if name.startswith("offsets/") and name.replace("offsets", "commits") not in files:
            raise damaged_position(f"it has no commit for {name!r}, so that Spark would run the batch again")


def _directories(held: Sequence[HeldSource]) -> dict[int, int]:
    """Return the directory of each line of these sources."""
    return {line: each for source in held for line, each in zip(source.lines, source.directories, strict=False)}


def _belongs(name: str, batch: int, last_entries: Mapping[int, int]) -> bool:
    """Return whether the query directory after this batch may hold such a file."""
    if numbered := _NUMBERED.fullmatch(name):
        return int(numbered[1]) in (batch - 1, batch) and numbered[1] == str(int(numbered[1]))
    if of_source := _OF_SOURCE.fullmatch(name):
        entry, last = _ENTRY.fullmatch(of_source[2]), last_entries.get(int(of_source[1]))
        if entry is not None:
            return last is None or int(entry[1]) <= last
        return is_plain_name(of_source[2]) and not of_source[2].startswith(".")
    return name == "metadata"


def _needed_files(directory: Path, batch: int, directories: Sequence[int]) -> dict[str, bytes]:
    files = {"metadata": (directory / "metadata").read_bytes()}
    for each in (batch - 1, batch):
        offsets = directory / "offsets" / str(each)
        if each >= 0 and offsets.exists():
            files[f"offsets/{each}"] = offsets.read_bytes()
            commit = directory / "commits" / str(each)
            files[f"commits/{each}"] = commit.read_bytes() if commit.exists() else _COMMIT
    last_entries = _last_entries(files[f"offsets/{batch}"], dict(enumerate(directories)))
    for source in sorted((directory / "sources").glob("*")):
        for entry in _needed_entries(source, last_entries.get(int(source.name))):
            files[f"sources/{source.name}/{entry.name}"] = entry.read_bytes()
    return files


def lay_out(position: SourcePosition, directory: Path, wanted: Sequence[HeldSource | None], streams: Streams) -> None:
    """Write a query directory from which Spark continues with the next batch.

    `wanted` has the position of each source, in the order of the query; None lets a source begin at its start.
    `streams` describes the query that reads them.

    Raises:
        CheckpointDamagedError: the position names files or lines that do not belong in a position.
        JobGraphError: sources that share a DataFrame have different positions.
    """
    check_files(position)
    lines: list[int | None] = []
    for held, own in zip(wanted, streams.of_source, strict=True):
        if held is not None and len(held.lines) != len(own):
            raise damaged_position(
                f'source "{held.uid}" has {len(held.lines)} offsets in it, and reads {len(own)} streams'
            )
        lines += [None] * len(own) if held is None else held.lines
    if not position.files or all(line is None for line in lines):
        return  # a new query, with batch 0
    moved = _moved(position, lines, streams)
    for name, data in position.files.items():
        of_source = _OF_SOURCE.fullmatch(name)
        if name.startswith("offsets/"):
            _write(directory / name, _permuted(data, lines))
        elif of_source is None:
            _write(directory / name, data)
        else:
            for new in [new for new, old in moved.items() if old == int(of_source[1])]:
                _write(directory / "sources" / str(new) / of_source[2], data)


@dataclass(frozen=True)
class Streams:
    """The streams of a query in the order in which Spark logs their offsets: the directory number of each.

    A DataFrame that is read twice has two lines in the log and one directory. `of_source` groups them by source.
    """

    of_source: tuple[tuple[int, ...], ...]

    @property
    def directories(self) -> list[int]:
        return [each for own in self.of_source for each in own]

    def lines_of(self, source: int) -> range:
        """Return the lines of the source at this place."""
        first = sum(map(len, self.of_source[:source]))
        return range(first, first + len(self.of_source[source]))


def _moved(position: SourcePosition, lines: Sequence[int | None], streams: Streams) -> dict[int, int]:
    """Return the old query's directory for each directory of the new one."""
    known = _directories(position.held)
    offsets = _lines(position.files[f"offsets/{position.batch}"])[2:]
    moved: dict[int, int] = {}
    filled: dict[int, str | None] = {}
    for line, new in zip(lines, streams.directories, strict=True):
        if line is not None and not 0 <= line < len(offsets):
            raise damaged_position(f"it has offsets of {len(offsets)} streams, and none in line {line}")
        offset = None if line is None else offsets[line]
        if filled.setdefault(new, offset) != offset:
            raise JobGraphError(
                "two sources read the same streaming DataFrame in the job, and stood at different positions in the"
                " checkpoint",
                hint="Load a DataFrame for each of them, as it was before.",
            )
        if line is not None and line in known:
            moved.setdefault(new, known[line])
    return moved


def _permuted(offsets: bytes, lines: Sequence[int | None]) -> bytes:
    """Return an entry of the offset log for the streams of the new query; "-" for a stream without an offset."""
    old = _lines(offsets)
    if any(line is not None and not 0 <= line < len(old) - 2 for line in lines):
        raise damaged_position(f"it has offsets of {max(0, len(old) - 2)} streams")
    return "\n".join([*old[:2], *("-" if line is None else old[2 + line] for line in lines)]).encode()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _last_entries(offsets: bytes, directories: Mapping[int, int]) -> dict[int, int]:
    """Return, for each directory of a source, the last entry of its own log that belongs to the batch; -1: none.

    `directories` maps lines to directories; other lines do not count. A source whose offset is JSON of another kind,
    such as Kafka's, is left out: it logs no records there.
    """
    found: dict[int, int] = {}
    for index, line in enumerate(_lines(offsets)[2:]):
        canonical = _LOG_OFFSET.fullmatch(line)
        try:
            offset = json.loads(line)
        except (ValueError, RecursionError):  # "-": the source has no offset yet
            offset = -1
        is_logged = canonical or isinstance(offset, int) or (isinstance(offset, dict) and "logOffset" in offset)
        if is_logged and index in directories:
            last = int(canonical[1] or canonical[2]) if canonical else -1
            directory = directories[index]
            found[directory] = min(last, found.get(directory, last))
    return found


def _lines(offsets: bytes) -> list[str]:
    """Split an offset log's entry into lines where Spark does."""
    return _LINE_END.split(offsets.decode(errors="replace"))


def _needed_entries(source: Path, last: int | None) -> Iterator[Path]:
    """Yield the newest compacted entry up to `last` and those after it; other files of a source unchanged."""
    entries: dict[int, Path] = {}
    compacted = -1
    for path in sorted(source.iterdir()):
        match = _ENTRY.fullmatch(path.name)
        if match is None:
            if not path.name.startswith(".") and path.is_file():
                yield path
            continue
        number = int(match.group(1))
        if last is not None and number > last:
            continue
        if match.group(2):
            compacted = max(compacted, number)
            entries[number] = path
        else:
            entries.setdefault(number, path)
    for number, path in sorted(entries.items()):
        if number >= compacted:
            yield path
