"""WordCount: the job to break, and what must hold of it whatever happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.connectors.file_sink import STAGING
from checkdam.errors import CheckdamError
from checkdam.graph.windowing.assigners import GlobalWindows
from checkdam.graph.windowing.triggers import CountTrigger
from checkdam.runtime.driver.publish_history import PUBLISHED
from checkdam.storage.contract import Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.mounts import mount
from checkdam.testing.trouble import DriverKilled, Trouble

UID = "count"


class WordCount:
    """Counts words into an exactly-once file sink; each word leaves with its count so far."""

    def __init__(
        self, epochs: Iterable[Iterable[Any]], *, storage: Storage | None = None, sink: Storage | None = None
    ) -> None:
        self.epochs = [list(epoch) for epoch in epochs]
        self.storage = storage or MemoryStorage()
        self.sink = sink or MemoryStorage()
        self._sink_uri = mount(self.sink)

    def job(self, **options: Any) -> LocalJob:
        """The job, as LocalJob takes it; with the same storage it is the same job."""
        return LocalJob(self.build, self.epochs, self.storage, record_type=str, **options)

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        counts = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str).sum(1)
        counts.uid(UID).sink_to_files(self._sink_uri).uid("out")

    def run(self, troubles: Sequence[Trouble] = (), **options: Any) -> LocalJob:
        """Run to the end; started again, as a user would, when the driver was killed or the job failed."""
        for _ in range(len(troubles) + 2):
            job = self.job(troubles=troubles, **options)
            try:
                job.run()
            except (DriverKilled, CheckdamError) as failure:
                last = failure
            else:
                return job
        raise AssertionError(f"the job never ended: {last!r}") from last

    def expected_state(self) -> dict[str, tuple[str, int]]:
        return {word: (word, count) for word, count in self._counted().items()}

    def expected_output(self, epochs: int | None = None) -> Counter[tuple[str, int]]:
        """The lines of all epochs, or of the first ones."""
        return Counter((word, n + 1) for word, count in self._counted(epochs).items() for n in range(count))

    def output(self, among: Collection[str] | None = None) -> Counter[tuple[str, int]]:
        """The lines of the files that a reader sees, or of those among these, and how often each is there."""
        found = [each.path for each in self.sink.list("") if not each.path.startswith(STAGING)]
        visible = [path for path in found if among is None or path in among]
        lines = [line for path in visible for line in self.sink.read(path).splitlines()]
        return Counter(tuple(json.loads(line).values()) for line in lines)

    def leftovers(self) -> list[str]:
        return leftovers(self.storage, self.sink)

    def _counted(self, epochs: int | None = None) -> Counter[str]:
        return Counter(word for epoch in self.epochs[:epochs] for word in epoch)


class WindowedWordCount(WordCount):
    """Counts words in a window without an end that fires with each record: the same output, from windows' state."""

    def build(self, environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        pairs = stream.map(lambda word: (word, 1), output_type=tuple[str, int]).key_by(0, key_type=str)
        counts = pairs.window(GlobalWindows()).trigger(CountTrigger(1)).reduce(_added)
        counts.uid(UID).sink_to_files(self._sink_uri).uid("out")


def _added(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return one[0], one[1] + other[1]


def leftovers(storage: Storage, sink: Storage) -> list[str]:
    """Return the files that no whole checkpoint needs, and output that nobody will publish."""
    store = CheckpointStore(storage, JOB_ID)
    needed = set()
    for checkpoint_id in store.completed():
        needed.add(f"{JOB_ID}/chk-{checkpoint_id}/_metadata")
        needed |= {f"{JOB_ID}/{file.path}" for file in store.load(checkpoint_id).files()}
    kept = [each.path for each in storage.list("") if each.path not in needed]
    if store.completed():
        histories = [path for path in kept if path.startswith(f"{JOB_ID}/{PUBLISHED}")]
        kept = [path for path in kept if path not in histories[:1]]
    return kept + [each.path for each in sink.list(STAGING)]
