"""Checkpoints in the driver's memory, served to the slots, which are other processes.

Like Flink's JobManagerCheckpointStorage: a failover restores from it, and it is gone with the driver.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from checkdam.errors import ConfigError, StorageError, StorageUncertainError
from checkdam.runtime.slot.slot_server import TOKEN_HEADER, TokenCheck
from checkdam.storage.contract import FileStatus
from checkdam.storage.memory_storage import BufferedOutput, FileTooLargeError, MemoryStorage, open_memory
from checkdam.storage.names import checked_path

_ERRORS: dict[str, type[Exception]] = {
    each.__name__: each for each in (FileNotFoundError, FileExistsError, ValueError, StorageError)
}


@dataclass(frozen=True)
class DriverMemory:
    """The address of the storage of a job whose checkpoints are in its driver's memory."""

    uri: str
    location: str
    token: str
    max_state_size: int | None


class _Failure(msgspec.Struct, frozen=True, tag=True):
    kind: str
    message: str
    hint: str | None = None


class _Answer(msgspec.Struct, frozen=True, tag=True):
    value: bytes | list[tuple[str, int, datetime]] | None = None


_decode_answer: Callable[[bytes], _Failure | _Answer] = msgspec.msgpack.Decoder(_Failure | _Answer).decode


class DriverMemoryServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves one storage to the slots of a job, which know the token. The storage checks paths in requests."""

    def __init__(self, location: str, uri: str) -> None:
        token = secrets.token_hex(32)
        super().__init__(location, middleware={"token": TokenCheck(token)})
        storage = open_memory(uri)
        assert isinstance(storage, MemoryStorage)
        self._storage = storage
        if location.startswith("grpc+tcp"):
            location = f"{location.rpartition(':')[0]}:{self.port}"
        self.access = DriverMemory(storage.uri, location, token, storage.max_state_size)
        self._handlers: dict[str, tuple[Any, Callable[..., Any]]] = {
            "write": (tuple[str, bytes], self._storage.write),
            "write_new": (tuple[str, bytes], self._storage.write_new),
            "read": (tuple[str], self._storage.read),
            "read_range": (tuple[str, int, int], self._storage.read_range),
            "status": (tuple[str], lambda path: [s] if (s := self._storage.status(path)) is not None else []),
            "list": (tuple[str], self._storage.list),
            "rename": (tuple[str, str], self._storage.rename),
            "delete": (tuple[str], self._storage.delete),
            "delete_directory": (tuple[str], self._storage.delete_directory),
        }

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            arguments, handler = self._handlers[action.type]
            found = handler(*msgspec.msgpack.decode(action.body.to_pybytes(), type=arguments))
            if isinstance(found, list):
                found = [(each.path, each.size, each.modified_at) for each in found]
            answer: _Failure | _Answer = _Answer(found)
        except (OSError, ValueError, StorageError) as error:
            kind = type(error).__name__ if type(error).__name__ in _ERRORS else StorageError.__name__
            answer = _Failure(kind, str(getattr(error, "message", error)), getattr(error, "hint", None))
        yield flight.Result(pa.py_buffer(msgspec.msgpack.encode(answer)))

    def close(self) -> None:
        """Stop serving, and release the stored files."""
        self.shutdown()
        self._storage.delete_directory("")


class DriverMemoryStorage:
    """The storage in the driver's memory, as a slot accesses it."""

    def __init__(self, access: DriverMemory) -> None:
        self._access = access
        self._client = flight.FlightClient(access.location)
        self._options = flight.FlightCallOptions(headers=[(TOKEN_HEADER.encode(), access.token.encode())])

    def __reduce__(self) -> tuple[Any, ...]:
        return DriverMemoryStorage, (self._access,)

    @property
    def uri(self) -> str:
        return self._access.uri

    def write(self, path: str, data: bytes) -> None:
        self.check_size(path, len(data))
        self._ask("write", path, data)

    def write_new(self, path: str, data: bytes) -> None:
        self.check_size(path, len(data))
        self._ask("write_new", path, data)

    def open_output(self, path: str) -> BinaryIO:
        return cast(BinaryIO, BufferedOutput(self, path))

    def read(self, path: str) -> bytes:
        return cast(bytes, self._ask("read", path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return cast(bytes, self._ask("read_range", path, offset, length))

    def status(self, path: str) -> FileStatus | None:
        return next(self._files("status", path), None)

    def list(self, directory: str) -> list[FileStatus]:
        return [*self._files("list", directory)]

    def rename(self, source: str, target: str) -> None:
        self._ask("rename", source, target)

    def delete(self, path: str) -> None:
        self._ask("delete", path)

    def make_directory(self, directory: str) -> None:
        checked_path(directory)  # there are no directories, only files

    def delete_directory(self, directory: str) -> None:
        self._ask("delete_directory", directory)

    def delete_empty_directory(self, directory: str) -> None:
        checked_path(directory)

    def check_writable(self) -> None:
        self._ask("list", "")

    def check_size(self, path: str, size: int) -> None:
        """Raise FileTooLargeError before any byte is sent."""
        limit = self._access.max_state_size
        if limit is not None and size > limit:
            raise FileTooLargeError(f"{self.uri}/{path}", size, limit)

    def _files(self, what: str, path: str) -> Iterator[FileStatus]:
        found = cast(Sequence[tuple[str, int, datetime]], self._ask(what, path))
        return (FileStatus(name, size, modified_at) for name, size, modified_at in found)

    def _ask(self, what: str, *arguments: object) -> object:
        action = flight.Action(what, msgspec.msgpack.encode(arguments))
        try:
            (result,) = self._client.do_action(action, self._options)
        except (pa.ArrowException, OSError) as error:
            raise StorageUncertainError(
                f"the driver, whose memory holds the checkpoints, does not answer: {error}"
            ) from error
        answer = _decode_answer(result.body.to_pybytes())
        if isinstance(answer, _Answer):
            return answer.value
        if answer.kind == StorageError.__name__:
            raise StorageError(answer.message, hint=answer.hint)
        raise _ERRORS.get(answer.kind, ValueError)(answer.message)


def opener(access: DriverMemory) -> Callable[[str], DriverMemoryStorage]:
    """Return how a slot opens `memory://…`: the storage of its job's driver, and no other."""
    storage = DriverMemoryStorage(access)

    def opened(root: str) -> DriverMemoryStorage:
        if root != access.uri:
            raise ConfigError(
                f'"{root}" is in the memory of one process, which slots cannot reach',
                hint="Give a directory or URI that all machines reach.",
            )
        return storage

    return opened
