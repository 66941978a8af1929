"""Source positions: Spark's own offset log, taken into a checkpoint and laid out again for the query that resumes.

A query directory holds `metadata`, `offsets/<batch>`, `commits/<batch>` and `sources/<i>/…`. To resume after a batch,
Spark wants the offsets and commits of that batch and the one before, and no source entry that comes later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
_ENTRY = re.compile(r"^(\d+)(\.compact)?$")


class SourcePosition(msgspec.Struct, frozen=True):
    """Where every source of a job stands after a micro-batch: the files of a query directory."""

    batch: int  # -1: no micro-batch yet
    files: dict[str, bytes]
    sources: list[str]  # what they are, in order


def capture(directory: Path, batch: int, sources: list[str]) -> bytes:
    """The position after a batch, while the query may already be planning the next."""
    files = _needed_files(directory, batch) if batch >= 0 else {}
    return msgspec.msgpack.encode(SourcePosition(batch, files, sources))


def sources_of(position: bytes) -> list[str]:
    """What kinds of sources a position belongs to."""
    return msgspec.msgpack.decode(position, type=SourcePosition).sources


def _needed_files(directory: Path, batch: int) -> dict[str, bytes]:
    files = {"metadata": (directory / "metadata").read_bytes()}
    for each in (batch - 1, batch):
        offsets = directory / "offsets" / str(each)
        if each >= 0 and offsets.exists():
            files[f"offsets/{each}"] = offsets.read_bytes()
            commit = directory / "commits" / str(each)
            files[f"commits/{each}"] = commit.read_bytes() if commit.exists() else _COMMIT
    log_offsets = _log_offsets(files[f"offsets/{batch}"])
    for source in sorted((directory / "sources").glob("*")):
        for entry in _needed_entries(source, log_offsets.get(int(source.name))):
            files[f"sources/{source.name}/{entry.name}"] = entry.read_bytes()
    return files


def lay_out(position: bytes, directory: Path, forget: Collection[int] = ()) -> None:
    """Write a query directory from which Spark goes on with the next batch.

    Sources listed in `forget` cannot be read again: they start from what comes now.
    """
    decoded = msgspec.msgpack.decode(position, type=SourcePosition)
    for name, data in decoded.files.items():
        if name.startswith("offsets/") and forget:
            data = _without(data, forget)
        if name.startswith("sources/") and int(name.split("/")[1]) in forget:
            continue
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _log_offsets(offsets: bytes) -> dict[int, int]:
    """For each source that keeps a log of its own, the last entry that belongs to the batch."""
    found = {}
    for index, line in enumerate(offsets.decode().splitlines()[2:]):
        try:
            offset = json.loads(line)
        except ValueError:
            continue  # not every source writes JSON; those keep no log here
        if isinstance(offset, dict) and "logOffset" in offset:
            found[index] = int(offset["logOffset"])
    return found


def _needed_entries(source: Path, last: int | None) -> Iterator[Path]:
    """The newest compacted entry up to `last` and those after it; other files of a source as they are."""
    entries: dict[int, Path] = {}
    compacted = -1
    for path in sorted(source.iterdir()):
        match = _ENTRY.match(path.name)
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
    lines = offsets.decode().splitlines()
    for index in forget:
        lines[2 + index] = "-"
    return "\n".join(lines).encode()
