"""Records what a job published with which checkpoint, so that resuming from an older one can withdraw it first."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from checkdam.checkpoint.terms import Term
from checkdam.errors import FormatTooNewError
from checkdam.ids import CheckpointId, JobId, OperatorUid
from checkdam.storage.contract import Storage
from checkdam.storage.subtree import subtree
from checkdam.storage.versioned import read_versioned

PUBLISHED = "_published"
"""Name of the file in a job's directory, followed by the number of the driver's term. Kept as long as checkpoints."""
_VERSION = 1

Committables = Mapping[OperatorUid, Sequence[bytes]]


class _Content(msgspec.Struct, frozen=True):
    """The content of the file: by checkpoint and operator uid, everything published with checkpoints later than
    `since`.

    All output up to the checkpoint `renamed` is known to be renamed. Each driver writes a file of its own, with a
    `revision` above all that it found: later writes of a replaced driver do not count.
    """

    version: int
    revision: int
    since: int
    renamed: int
    checkpoints: dict[int, dict[str, list[bytes]]]
    digest: str | None = None  # of the file without this field; None: written by a version that had none

    def with_digest(self) -> _Content:
        bare = msgspec.json.encode(msgspec.structs.replace(self, digest=None))
        return msgspec.structs.replace(self, digest=hashlib.sha256(bare).hexdigest())


_decode_content = msgspec.json.Decoder(_Content).decode


def _term_of(name: str) -> int:
    """Return the number of the term that wrote a file. Of two that found the same files the later one counts."""
    number = name.removeprefix(PUBLISHED).removeprefix("-")
    return int(number) if number.isdecimal() else 0


def tells_of_checkpoints(storage: Storage, job_id: JobId) -> bool:
    """Return whether the history of a job shows that it had checkpoints, or cannot be read."""
    published = PublishedOutput(subtree(storage, job_id))
    try:
        published.recall(None)
    except FormatTooNewError:
        return True
    return published.is_unreadable or published.has_later_than(CheckpointId(0))


class PublishedOutput:
    """The published output of one job. The file is written before output becomes visible, so it is never incomplete.

    Without `files` nothing is recorded, and nothing is known.
    """

    def __init__(self, files: Storage | None) -> None:
        self._files = files
        self._since: int | None = None  # None: unknown
        self._renamed = 0
        self._checkpoints: dict[int, Committables] = {}
        self.is_unreadable = False  # whether there is a file that cannot be read
        self._is_written = False  # whether a file with the same content exists
        self._term: Term | None = None
        self._name = PUBLISHED
        self._current: str | None = None  # the file that counts: the own one, once there is something to write
        self._revision = 1

    def recall(self, term: Term | None) -> None:
        """Read the files of earlier drivers. If one is missing or damaged, the published output is unknown.

        Raises:
            FormatTooNewError: a newer version wrote it.
        """
        if self._files is None:
            return
        self._term = term
        self._name = PUBLISHED if term is None else f"{PUBLISHED}-{term.number}"
        found = {name: self._read(name) for name in self._names()}
        known = {name: content for name, content in found.items() if content is not None}
        self._revision = max((content.revision for content in known.values()), default=0) + 1
        self.is_unreadable = len(known) < len(found)
        if not known or self.is_unreadable:  # the damaged one may be the newest
            return
        self._current, content = max(known.items(), key=lambda each: (each[1].revision, _term_of(each[0])))
        self._since, self._renamed, self._is_written = content.since, content.renamed, True
        self._checkpoints = {
            number: {OperatorUid(uid): committables for uid, committables in by_uid.items()}
            for number, by_uid in content.checkpoints.items()
        }

    def _names(self) -> list[str]:
        assert self._files is not None
        return [status.path for status in self._files.list("") if status.path.startswith(PUBLISHED)]

    def _read(self, name: str) -> _Content | None:
        """Return the content of a file; None if it is damaged."""
        assert self._files is not None
        try:
            content = read_versioned(self._files, name, _decode_content, _VERSION)
        except (FileNotFoundError, ValueError):
            return None
        return content if content.digest is None or content == content.with_digest() else None

    def is_known_after(self, checkpoint: CheckpointId) -> bool:
        return self._since is not None and self._since <= checkpoint

    def is_renamed(self, checkpoint: CheckpointId) -> bool:
        """Return whether all output of a checkpoint is known to have become visible."""
        return checkpoint <= self._renamed

    def has_later_than(self, checkpoint: CheckpointId) -> bool:
        """Return whether a later checkpoint is known to have existed."""
        return max([self._since or 0, self._renamed, *self._checkpoints]) > checkpoint

    def after(self, checkpoint: CheckpointId) -> dict[OperatorUid, list[bytes]]:
        """Return the output published with later checkpoints, as far as known."""
        found: defaultdict[OperatorUid, list[bytes]] = defaultdict(list)
        for number in sorted(self._checkpoints):
            if number > checkpoint:
                for uid, committables in self._checkpoints[number].items():
                    found[uid] += committables
        return dict(found)

    def go_back_to(self, checkpoint: CheckpointId) -> None:
        """Forget the output published with later checkpoints; from here on everything is known."""
        if not self.is_known_after(checkpoint):
            self._since, self._is_written = checkpoint, False
        if self.has_later_than(checkpoint):
            self._checkpoints = {number: each for number, each in self._checkpoints.items() if number <= checkpoint}
            self._renamed, self._is_written = min(self._renamed, checkpoint), False
        self._write()

    def add(self, checkpoint: CheckpointId, committables: Committables, oldest_kept: CheckpointId | None) -> None:
        """Record the output about to be published, and drop entries that no kept checkpoint needs."""
        since = max(self._since or 0, oldest_kept or 0)
        if self._files is None or checkpoint <= since or not any(committables.values()):
            return
        if checkpoint not in self._checkpoints:
            self._since, self._is_written = since, False
            self._checkpoints = {number: each for number, each in self._checkpoints.items() if number > since}
            self._checkpoints[checkpoint] = {uid: each for uid, each in committables.items() if each}
        self._write()  # includes what an earlier try failed to write

    def note_renamed(self, checkpoint: CheckpointId) -> None:
        """Record that all output of a checkpoint is visible; written to the file by the next `add` or `save`."""
        if self._files is not None and checkpoint > self._renamed:
            self._renamed, self._is_written = checkpoint, False

    def save(self) -> None:
        """Write the record, at the end of a job that leaves checkpoints."""
        if self._files is not None and self._since is not None:
            self._write()
            self._delete_others()

    def delete(self) -> None:
        """Remove the file, at the end of a job that leaves no checkpoints."""
        if self._files is not None:
            self._current = None
            self._delete_others()

    def stop(self) -> None:
        """Remove the file and record nothing from here on: output is published without a checkpoint."""
        self.delete()
        self._files, self._since, self._renamed, self._checkpoints = None, None, 0, {}

    def _delete_others(self) -> None:
        """Remove all files except the one that counts."""
        assert self._files is not None
        others = [name for name in self._names() if name != self._current]
        if others and self._term is not None:
            self._term.check()  # after listing: a later driver has a file of its own
        for name in others:
            self._files.delete(name)

    def _write(self) -> None:
        if self._files is None or self._is_written:
            return
        content = _Content(
            _VERSION,
            self._revision,
            self._since or 0,
            self._renamed,
            {
                number: {str(uid): list(each) for uid, each in by_uid.items()}
                for number, by_uid in self._checkpoints.items()
            },
        )
        self._files.write(self._name, msgspec.json.encode(content.with_digest()))
        self._is_written = True
        if self._current != self._name:
            self._current = self._name
            self._delete_others()
