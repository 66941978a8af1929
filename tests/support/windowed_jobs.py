"""A job with windows over clicks of users, to be stopped in the middle and looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from checkdam import (
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowedStream,
)
from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend
from checkdam.storage.contract import Storage
from checkdam.testing import LocalJob, MemoryStorage, OutputDirectory
from checkdam.testing.local_job import EVERY_EPOCH

Click = tuple[str, int, int]
"""User, clicks, milliseconds."""

Finish = Callable[[WindowedStream[Any, Any, Any]], DataStream[Any]]

UID = "clicks"
BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("32 MB")}
MINUTE = timedelta(minutes=1)
EPOCHS: list[list[Click]] = [
    [("ada", 1, 5_000), ("bob", 1, 20_000), ("ada", 2, 61_000)],
    [("ada", 4, 50_000), ("ada", 8, 59_000)],
    [("bob", 3, 62_000)],
]
"""In event time that is three minutes behind, so that no window ends before the input does."""


def summed(windows: WindowedStream[Any, Any, Any]) -> DataStream[Any]:
    return windows.sum(1)


class WindowedJob:
    """Clicks in windows. Its output is read as rows of the file sink."""

    def __init__(
        self,
        finish: Finish = summed,
        assigner: Any = None,
        *,
        backend: KeyedStateBackend = BACKENDS["hashmap"],
        storage: Storage | None = None,
        delay: timedelta = timedelta(minutes=3),
    ) -> None:
        self.output = OutputDirectory()
        self.storage = MemoryStorage() if storage is None else storage
        self._finish = finish
        self._assigner = TumblingEventTimeWindows(MINUTE) if assigner is None else assigner
        self._backend = backend
        self._delay = delay

    def job(self, epochs: Iterable[Sequence[Click]] = EPOCHS, **options: Any) -> LocalJob:
        options.setdefault("checkpoints", replace(EVERY_EPOCH, num_retained=9))
        return LocalJob(self.build, epochs, self.storage, record_type=Click, **options)

    def build(self, env: StreamExecutionEnvironment, clicks: DataStream[Any]) -> None:
        env.set_state_backend(self._backend)
        watermarks: Any = WatermarkStrategy.for_bounded_out_of_orderness(self._delay, lambda click: click[2])
        windows: Any = (
            clicks.assign_timestamps_and_watermarks(watermarks).key_by(lambda click: click[0]).window(self._assigner)
        )
        self._finish(windows).uid(UID).sink_to_files(self.output.uri).uid("out")
