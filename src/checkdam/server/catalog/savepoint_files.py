"""Which savepoints still exist: jobs remember those they wrote, and anybody may delete them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from datetime import timedelta

import msgspec

from checkdam.clock import Clock, SystemClock
from checkdam.errors import CheckdamError
from checkdam.runtime.monitor.job_records import CheckpointRecord, JobRecord
from checkdam.runtime.workers import Workers
from checkdam.storage.filesystem import open_storage

_PATIENCE = timedelta(seconds=1)
_LIFETIME = 2.0  # seconds for which an answer is used again
_SHARE_OF_TIME = 20  # looking takes at most a twentieth of the time, however slow the storage is
_THREADS = 8
_MOST_REMEMBERED = 10_000


class SavepointFiles:
    """Looks at storage, and remembers for a moment what it saw. Thread-safe.

    A savepoint counts as existing while its storage does not answer: listing one too many does no harm.
    """

    def __init__(self, clock: Clock | None = None, patience: timedelta = _PATIENCE) -> None:
        self._clock = clock or SystemClock()
        self._patience = patience.total_seconds()
        self._workers = Workers("savepoint-files", _THREADS)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[bool, float]] = {}  # by path: whether it exists, and until when that holds
        self._looks: dict[str, Future[None]] = {}  # in progress

    def as_stored(self, record: JobRecord) -> JobRecord:
        """Return the record without the savepoints that are gone; its history marks them as discarded."""
        known = [*record.savepoints, *(each for each in record.checkpoints if each.kind.is_savepoint)]
        gone = self._gone([each.path for each in known if each.path is not None])
        if not gone:
            return record
        return msgspec.structs.replace(
            record,
            savepoints=tuple(each for each in record.savepoints if each.path not in gone),
            checkpoints=tuple(_marked(each) if each.path in gone else each for each in record.checkpoints),
        )

    def expire(self) -> None:
        """Look at storage again with the next call."""
        with self._lock:
            self._seen.clear()

    def _gone(self, paths: Sequence[str]) -> set[str]:
        now = self._clock.monotonic()
        with self._lock:
            old = [path for path in dict.fromkeys(paths) if self._seen.get(path, (True, 0.0))[1] <= now]
            for path in old:
                if path not in self._looks:
                    self._looks[path] = self._workers.submit(self._look, path)
            looks = [self._looks[path] for path in old]
        wait(looks, self._patience)
        with self._lock:
            return {path for path in paths if not self._seen.get(path, (True, 0.0))[0]}

    def _look(self, path: str) -> None:
        began, exists = self._clock.monotonic(), True
        try:
            exists = open_storage(path).status("_metadata") is not None
        except CheckdamError:
            pass  # its storage does not answer, or is not known here
        finally:
            now = self._clock.monotonic()
            with self._lock:
                del self._looks[path]
                self._forget(now)
                self._seen[path] = (exists, now + max(_LIFETIME, (now - began) * _SHARE_OF_TIME))

    def _forget(self, now: float) -> None:
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen = {path: seen for path, seen in self._seen.items() if seen[1] > now}


def _marked(savepoint: CheckpointRecord) -> CheckpointRecord:
    return msgspec.structs.replace(savepoint, is_discarded=True)
