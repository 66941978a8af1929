"""The exactly-once file sink: complete part files appear when the checkpoint that covers them completes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from checkdam.connectors.contract import FinishOutput, Withdrawn, WriterContext
from checkdam.errors import CheckpointDamagedError, JobGraphError, StorageError
from checkdam.ids import JobId, OperatorUid
from checkdam.storage.contract import Storage
from checkdam.storage.filesystem import open_storage
from checkdam.types.batch import Batch
from checkdam.types.output_columns import ParquetColumns, json_columns

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

FORMATS = ("json", "parquet", "text")
STAGING = ".checkdam"
"""The directory of prepared files inside the sink's own directory; Spark and Hive skip such names."""
WITHDRAWN = ".checkdam-withdrawn"
"""The directory of withdrawn files, beside it; they stay until the user deletes them."""


class PartFile(msgspec.Struct, frozen=True, array_like=True):
    """A prepared file and its name once it is committed."""

    staged: str
    final: str
    size: int | None = None  # None: written by a version that did not record it


_decode_part = msgspec.msgpack.Decoder(PartFile).decode


@dataclass(frozen=True)
class FileSink:
    """Part files below one directory, in one format."""

    path: str
    format: str
    is_transactional = True
    returns_to_spark = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise JobGraphError(
                f'a file sink cannot write the format "{self.format}"', hint=f"Use one of {', '.join(FORMATS)}."
            )

    @property
    def default_uid(self) -> str:
        return f"files-{hashlib.sha256(self.path.encode()).hexdigest()[:12]}"

    def open_writer(self, ctx: WriterContext) -> FileWriter:
        return FileWriter(open_storage(self.path), self.format, ctx)

    def open_committer(self, job_id: JobId, uid: OperatorUid) -> FileCommitter:
        return FileCommitter(open_storage(self.path), job_id, uid)


def _mark(uid: OperatorUid) -> str:
    """Return a mark that distinguishes the files of sinks that share a directory."""
    return hashlib.sha256(uid.encode()).hexdigest()[:8]


class FileWriter:
    """Writes one staged file between two barriers, opened at the first record."""

    def __init__(self, storage: Storage, format: str, ctx: WriterContext) -> None:
        self._storage = storage
        self._format = format
        self._ctx = ctx
        self._count = 0
        self._part: PartFile | None = None
        self._encoder: _Encoder | None = None

    def write(self, batch: Batch) -> None:
        if self._encoder is None:
            ctx, mark = self._ctx, _mark(self._ctx.uid)
            name = f"part-{ctx.subtask:05d}-{mark}-{ctx.attempt}-{self._count:06d}.{self._suffix}"
            self._part = PartFile(f"{STAGING}/{ctx.job_id}/{mark}/{name}", name)
            self._count += 1
            self._encoder = _ENCODERS[self._format](self._storage.open_output(self._part.staged))
        self._encoder.write(batch)

    @property
    def _suffix(self) -> str:
        return "txt" if self._format == "text" else self._format

    def snapshot(self) -> FinishOutput:
        if self._encoder is None or self._part is None:
            return tuple
        encoder, part = self._encoder, self._part
        self._encoder = self._part = None

        def prepare() -> tuple[bytes, ...]:
            encoder.close()
            written = self._storage.status(part.staged)
            if written is None:  # a file in a deleted directory still accepts bytes and closes without error
                raise StorageError(
                    f'"{self._storage.uri}/{part.staged}" was deleted while it was written',
                    hint="Leave the directory of a sink alone while its job runs.",
                )
            return (msgspec.msgpack.encode(msgspec.structs.replace(part, size=written.size)),)

        return prepare

    def close(self) -> None:
        if self._encoder is not None and self._part is not None:
            self._encoder.close()
            self._storage.delete(self._part.staged)
            self._encoder = self._part = None


def _pass() -> None:
    """Pass: no other driver can take over the job."""


class FileCommitter:
    """Moves staged files to their visible place."""

    def __init__(self, storage: Storage, job_id: JobId, uid: OperatorUid) -> None:
        self._storage = storage
        self._job_directory = f"{STAGING}/{job_id}"
        self._mark = _mark(uid)
        self._directory = f"{self._job_directory}/{self._mark}"
        self._withdrawn = f"{WITHDRAWN}/{job_id}"

    def check(self) -> None:
        self._storage.check_writable()

    def check_committables(self, committables: Sequence[bytes]) -> None:
        self._parts(committables)

    def missing(self, committables: Sequence[bytes]) -> list[str]:
        found = {status.path: status.size for status in self._storage.list(self._directory)}
        return [
            f"{self._storage.uri}/{part.staged}" for part in self._parts(committables) if self._is_lost(part, found)
        ]

    def _is_lost(self, part: PartFile, staged: Mapping[str, int]) -> bool:
        size = staged.get(part.staged)
        if size is None:  # a job restored from a savepoint that names it may have published it
            final = self._storage.status(part.final)
            size = None if final is None else final.size
        return size is None or part.size not in (None, size)

    def commit(self, committables: Sequence[bytes]) -> list[str]:
        lost = []
        for part in self._parts(committables):
            if not self._moved(part.staged, part.final) and self._storage.status(part.final) is None:
                lost.append(f"{self._storage.uri}/{part.final}")
        return lost

    @property
    def can_withdraw(self) -> bool:
        return True

    def withdraw(self, committables: Sequence[bytes], promised: Collection[bytes] = ()) -> Withdrawn:
        moved, gone = [], []
        keep = {part.staged for part in self._parts(promised)}
        for part in self._parts(committables):
            is_staged = self._storage.status(part.staged) is not None
            if is_staged and part.staged not in keep:  # before the lookup: a replaced driver may be about to publish it
                self._storage.delete(part.staged)
            aside = f"{self._withdrawn}/{part.final}"
            if self._moved(part.final, aside) or self._storage.status(aside) is not None:
                moved.append(part.final)
            elif not is_staged:  # else it was never published
                gone.append(part.final)
        return Withdrawn(f"{self._storage.uri}/{self._withdrawn}", tuple(moved), tuple(gone))

    def bring_back(self, committables: Sequence[bytes]) -> list[str]:
        lost = []
        for part in self._parts(committables):
            if self._storage.status(part.final) is None and not self._moved(_aside(part), part.final):
                lost.append(f"{self._storage.uri}/{part.final}")
        return lost

    def _moved(self, source: str, target: str) -> bool:
        """Rename a file. Return False if there is none."""
        if self._storage.status(source) is None:
            return False
        try:
            self._storage.rename(source, target)
        except FileNotFoundError:  # removed since the lookup
            return False
        return True

    def _parts(self, committables: Collection[bytes]) -> list[PartFile]:
        """Return the part files that committables name, after checking all of them."""
        return [_decode(each, self._mark) for each in committables]

    def abandon_all_but(self, committables: Collection[bytes], check: Callable[[], None] = _pass) -> None:
        keep = {part.staged for part in self._parts(committables)}
        found = [status.path for status in self._storage.list(self._directory) if status.path not in keep]
        if found:
            check()
        for path in found:
            self._storage.delete(path)

    def forget(self, job_id: JobId) -> None:
        self._storage.delete_directory(f"{STAGING}/{job_id}")

    def close(self, promised: Collection[bytes] = (), check: Callable[[], None] = _pass) -> bool:
        self.abandon_all_but(promised, check)
        keep, has_kept = {part.staged for part in self._parts(promised)}, False
        for directory in (self._directory, self._job_directory, STAGING):
            found = self._storage.list(directory)
            has_kept |= any(status.path in keep for status in found)
            if not found:
                check()  # after the listing: from now on another driver may prepare output there
                self._storage.delete_directory(directory)
        return has_kept


# A staged file lies in the directory of its job and its sink (`_mark`), under its published name.
_STAGED = re.compile(
    rf"{re.escape(STAGING)}/[0-9a-f]{{32}}/(?P<mark>[0-9a-f]{{8}})/"
    r"(?P<final>part-\d{5,9}-(?P=mark)-\w{1,64}-\d{6,18}\.(?:json|parquet|txt))",
    re.ASCII,
)


def _decode(committable: bytes, mark: str) -> PartFile:
    """Return the part file that a committable names. The committable may come from an untrusted snapshot.

    Raises:
        CheckpointDamagedError: it names something that the sink of this mark does not write.
    """
    try:
        part = _decode_part(committable)
    except (ValueError, RecursionError) as error:
        raise _damaged(str(error)) from error
    staged = _STAGED.fullmatch(part.staged)
    if staged is None or staged["mark"] != mark or staged["final"] != part.final:
        raise _damaged(f"{part.staged[:200]!r} is not the staged form of {part.final[:200]!r}")
    return part


def _aside(part: PartFile) -> str:
    """Return the place of a part file that the job which prepared it has withdrawn."""
    return f"{WITHDRAWN}/{part.staged.split('/')[1]}/{part.final}"


def _damaged(what: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"a committable of a file sink in the checkpoint is damaged: {what}", hint="Use another checkpoint of the job."
    )


class _Encoder:
    """Encodes batches as the bytes of one file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, batch: Batch) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._stream.close()


def _is_encodable(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


class _TextEncoder(_Encoder):
    def write(self, batch: Batch) -> None:
        lines = [f"{value}\n" for value in batch.rows]
        try:
            self._stream.write("".join(lines).encode())
        except UnicodeEncodeError as error:
            broken = next(line for line in lines if not _is_encodable(line))
            raise JobGraphError(
                f"a record cannot be written as text, because it holds half of a surrogate pair: {broken[:200]!r}",
                hint='Replace such characters in a map first, with text.encode("utf-8", "replace").decode().',
            ) from error


class _JsonEncoder(_Encoder):
    """One JSON object per line, with the column names as keys."""

    _json = msgspec.json.Encoder()

    def write(self, batch: Batch) -> None:
        names = [column.name for column in batch.type.columns]
        if batch.type.is_opaque:
            objects: list[Any] = [{"value": value} for value in batch.rows]
        else:
            columns = [column.to_pylist() for column in json_columns(batch).columns]
            objects = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        try:
            self._stream.write(self._json.encode_lines(objects))
        except (TypeError, ValueError) as error:
            raise JobGraphError(
                f'records of type "{batch.type.name}" cannot be written as JSON: {error}',
                hint="Map them to plain fields first, with an output_type such as tuple[str, int].",
            ) from error


class _ParquetEncoder(_Encoder):
    """Buffers the first batches until every datetime column has a value: the file's schema depends on them."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._form = ParquetColumns()
        self._waiting: list[Batch] = []
        self._writer: ParquetWriter | None = None

    def write(self, batch: Batch) -> None:
        if batch.type.is_opaque:
            raise JobGraphError(
                f'records of type "{batch.type.name}" have no columns to write as parquet',
                hint="Give the last map an output_type such as tuple[str, int].",
            )
        is_known = self._writer is not None or self._form.look_at(batch)
        self._waiting.append(batch)
        if is_known or sum(map(len, self._waiting)) >= _MOST_WAITING:
            self._write_waiting()

    def _write_waiting(self) -> None:
        from pyarrow.parquet import ParquetWriter  # loaded only where it is used

        for batch in self._waiting:
            columns = self._form.columns(batch).rename_columns([column.name for column in batch.type.columns])
            if self._writer is None:
                self._writer = ParquetWriter(self._stream, columns.schema)
            self._writer.write_batch(columns)
        self._waiting = []

    def close(self) -> None:
        self._write_waiting()
        if self._writer is not None:
            self._writer.close()
        super().close()


_MOST_WAITING = 100_000  # records


_ENCODERS: dict[str, Callable[[BinaryIO], _Encoder]] = {
    "json": _JsonEncoder,
    "parquet": _ParquetEncoder,
    "text": _TextEncoder,
}
