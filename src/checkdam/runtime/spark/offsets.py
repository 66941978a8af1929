"""Source positions: Spark's own offset log, taken into a checkpoint and laid out again for the query that resumes.

A query directory holds `metadata`, `offsets/<batch>`, `commits/<batch>` and `sources/<i>/…`. To resume after a batch,
Spark wants the offsets and commits of that batch and the one before, and no source entry that comes later.

A position is read with doubt, as it may come from a snapshot that somebody else made: it may name only files of these
shapes, and nothing that would make Spark run a batch again or read files that the source has not found itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from checkdam.errors import CheckpointDamagedError
from checkdam.storage.names import is_plain_name

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
_ENTRY = re.compile(r"(\d{1,18})(\.compact)?", re.ASCII)
_NUMBERED = re.compile(r"(?:offsets|commits)/(\d{1,18})", re.ASCII)
_LOG_OFFSET = re.compile(r'\{"logOffset":(\d{1,18})\}|(\d{1,18})', re.ASCII)
_LINE_END = re.compile("\r\n|\r|\n")
_OF_SOURCE = re.compile(r"sources/(\d{1,4})/(.+)", re.ASCII | re.DOTALL)


class SourcePosition(msgspec.Struct, frozen=True):
    """Where every source of a job stands after a micro-batch: the files of a query directory."""

    batch: int  # -1: no micro-batch yet
    files: dict[str, bytes]
    sources: list[str]  # what they are, in order


_decode = msgspec.msgpack.Decoder(SourcePosition).decode


def capture(directory: Path, batch: int, sources: list[str]) -> bytes:
    """The position after a batch, while the query may already be planning the next."""
    files = _needed_files(directory, batch) if batch >= 0 else {}
    return msgspec.msgpack.encode(SourcePosition(batch, files, sources))


def sources_of(position: bytes) -> list[str]:
    """What kinds of sources a position belongs to."""
    return decode(position).sources


def decode(position: bytes) -> SourcePosition:
    """The position that `capture` gave.

    Raises:
        CheckpointDamagedError: it is not one, or names what no position names.
    """
    try:
        decoded = _decode(position)
    except (ValueError, RecursionError) as error:
        raise _damaged(str(error)) from error
    files, batch = decoded.files, decoded.batch
    if files and not (batch >= 0 and f"offsets/{batch}" in files):
        raise _damaged(f"it lacks the offsets of batch {batch}")
    last_entries = _last_entries(files.get(f"offsets/{batch}", b""))
    for name in files:
        if not _belongs(name, batch, last_entries):
            raise _damaged(f"it names the file {name[:200]!r}")
        if name.startswith("offsets/") and name.replace("offsets", "commits") not in files:
            raise _damaged(f"it has no commit for {name!r}, so that Spark would run the batch again")
    return decoded


def _belongs(name: str, batch: int, last_entries: Mapping[int, int]) -> bool:
    """Whether the query directory after this batch may hold such a file."""
    if numbered := _NUMBERED.fullmatch(name):
        return int(numbered[1]) in (batch - 1, batch) and numbered[1] == str(int(numbered[1]))
    if of_source := _OF_SOURCE.fullmatch(name):
        entry, last = _ENTRY.fullmatch(of_source[2]), last_entries.get(int(of_source[1]))
        if entry is not None:
            return last is None or int(entry[1]) <= last
        return is_plain_name(of_source[2]) and not of_source[2].startswith(".")
    return name == "metadata"


def _damaged(what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"the source position in the checkpoint is damaged: {what}", hint="Use another checkpoint of the job."
    )


def _needed_files(directory: Path, batch: int) -> dict[str, bytes]:
    files = {"metadata": (directory / "metadata").read_bytes()}
    for each in (batch - 1, batch):
        offsets = directory / "offsets" / str(each)
        if each >= 0 and offsets.exists():
            files[f"offsets/{each}"] = offsets.read_bytes()
            commit = directory / "commits" / str(each)
            files[f"commits/{each}"] = commit.read_bytes() if commit.exists() else _COMMIT
    last_entries = _last_entries(files[f"offsets/{batch}"])
    for source in sorted((directory / "sources").glob("*")):
        for entry in _needed_entries(source, last_entries.get(int(source.name))):
            files[f"sources/{source.name}/{entry.name}"] = entry.read_bytes()
    return files


def lay_out(position: bytes, directory: Path, forget: Collection[int] = ()) -> None:
    """Write a query directory from which Spark goes on with the next batch.

    Sources listed in `forget` cannot be read again: they start from what comes now.

    Raises:
        CheckpointDamagedError: as `decode`.
    """
    for name, data in decode(position).files.items():
        if name.startswith("offsets/") and forget:
            data = _without(data, forget)
        if name.startswith("sources/") and int(name.split("/")[1]) in forget:
            continue
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _last_entries(offsets: bytes) -> dict[int, int]:
    """For each source, the last entry of its own log that belongs to the batch; -1: none.

    A source whose offset is JSON of another kind, such as that of Kafka, is left out: it logs no records there.
    """
    found = {}
    for index, line in enumerate(_lines(offsets)[2:]):
        canonical = _LOG_OFFSET.fullmatch(line)
        try:
            offset = json.loads(line)
        except (ValueError, RecursionError):  # "-": the source has no offset yet
            offset = -1
        if canonical or isinstance(offset, int) or (isinstance(offset, dict) and "logOffset" in offset):
            found[index] = int(canonical[1] or canonical[2]) if canonical else -1
    return found


def _lines(offsets: bytes) -> list[str]:
    """The lines of an offset log's entry, cut where Spark cuts them."""
    return _LINE_END.split(offsets.decode(errors="replace"))


def _needed_entries(source: Path, last: int | None) -> Iterator[Path]:
    """The newest compacted entry up to `last` and those after it; other files of a source as they are."""
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


def _without(offsets: bytes, forget: Collection[int]) -> bytes:
    lines = _lines(offsets)
    if len(lines) <= 2 + max(forget):
        raise _damaged(f"it has offsets of {max(0, len(lines) - 2)} sources")
    for index in forget:
        lines[2 + index] = "-"
    return "\n".join(lines).encode()
