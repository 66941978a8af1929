"""Jobs on one shared Spark session, run in this process and watched by a listener."""

from __future__ import annotations

import ast
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from checkdam import CheckpointConfig, StreamExecutionEnvironment
from checkdam.api.launch import Launch, Resume, set_launch
from checkdam.checkpoint.settings import CheckpointRetention, JobEnd
from checkdam.config import Configuration
from checkdam.errors import CheckdamError
from checkdam.ids import CheckpointId, Epoch, OperatorUid
from checkdam.runtime.monitor.job_events import CheckpointStats, EpochStats, JobListener
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.runtime.restart import Restart
from checkdam.runtime.source_position import SourceStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from checkdam.runtime.job_result import JobResult


class Watcher(JobListener):
    """Keeps all that a job says; what a test hangs on an event runs in the job's own thread."""

    def __init__(self) -> None:
        self.epochs: list[EpochStats] = []
        self.checkpoints: list[CheckpointStats] = []
        self.failed_checkpoints: list[str] = []
        self.lines: list[str] = []
        self.restored_from: list[str] = []
        self.skipped: list[tuple[str, CheckdamError]] = []
        self.failures: list[CheckdamError] = []
        self.attempts: list[Sequence[int]] = []
        self.left: list[CheckdamError] = []
        self.end: JobEnd | None = None
        self.is_cancelled = False
        self.on_epoch: Callable[[EpochStats], None] = lambda stats: None
        self.on_slots: Callable[[Sequence[int]], None] = lambda pids: None
        self.on_checkpoint: Callable[[CheckpointStats], None] = lambda stats: None
        self.on_failed_checkpoint: Callable[[str], None] = lambda reason: None
        self.on_printed: Callable[[list[str]], None] = lambda lines: None

    @property
    def shown(self) -> list[str]:
        """What print() sinks showed, without the number of the subtask."""
        return [line.partition("> ")[2] if "> " in line else line for line in self.lines]

    @property
    def values(self) -> list[Any]:
        """The same as Python values."""
        return [ast.literal_eval(line) for line in self.shown]

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        pids = [slot.pid for slot in slots]
        self.attempts.append(tuple(pids))
        self.on_slots(pids)

    def restored(self, path: str, epoch: Epoch) -> None:
        self.restored_from.append(path)

    def checkpoint_skipped(self, path: str, reason: CheckdamError) -> None:
        self.skipped.append((path, reason))

    def epoch_ended(self, stats: EpochStats) -> None:
        self.epochs.append(stats)
        self.on_epoch(stats)

    def printed(self, lines: list[str]) -> None:
        self.lines += lines
        self.on_printed(lines)

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        self.checkpoints.append(stats)
        self.on_checkpoint(stats)

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        self.failed_checkpoints.append(reason)
        self.on_failed_checkpoint(reason)

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        self.failures.append(failure)

    def left_behind(self, reason: CheckdamError) -> None:
        self.left.append(reason)

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        self.end = end


class Jobs:
    """Starts jobs as the command line would: settings, listener and what to restore come from a Launch."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.watcher = Watcher()

    def checkpoints(self, interval: timedelta | None = timedelta(0), **options: Any) -> CheckpointConfig:
        """After every epoch and kept whatever the end unless told otherwise, in the test's own directory."""
        given = {"storage": str(self.tmp_path / "ck"), "retention": CheckpointRetention.RETAIN_ON_CANCELLATION}
        return CheckpointConfig(interval=interval, **{**given, **options})

    def environment(
        self,
        parallelism: int = 2,
        checkpoints: CheckpointConfig | None = None,
        *,
        restore: str | None = None,
        resume: bool = False,
        allow_non_restored_state: bool = False,
        source_positions: dict[str, str] | None = None,
        settings: dict[str, object] | None = None,
    ) -> StreamExecutionEnvironment:
        """A new environment with a new watcher."""
        self.watcher = Watcher()
        set_launch(
            Launch(
                Configuration.load(None),
                restore_path=restore,
                resume=Resume.LATEST if resume else None,
                allow_non_restored_state=allow_non_restored_state,
                source_positions={
                    OperatorUid(uid): SourceStart(start) for uid, start in (source_positions or {}).items()
                },
                listener=self.watcher,
            )
        )
        given = {"parallelism.default": parallelism, **(settings or {})}
        environment = StreamExecutionEnvironment.get_execution_environment(given)
        if checkpoints is not None:
            environment.enable_checkpointing(checkpoints)
        return environment

    def texts(self, *contents: str, first: int = 0, directory: str = "texts") -> str:
        """Text files that arrive in this order."""
        for number, content in enumerate(contents, start=first):
            file = self.tmp_path / directory / f"{number}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
            os.utime(file, (1000 + number, 1000 + number))
        return str(self.tmp_path / directory)

    def word_count(
        self, environment: StreamExecutionEnvironment, texts: str, uid: str = "count", name: str = "word count"
    ) -> JobResult:
        """Count words, one file an epoch; prints the running counts."""
        lines = environment.read_text(texts, max_files_per_epoch=1)
        words = lines.flat_map(str.split, output_type=str).map(lambda word: (word, 1), output_type=tuple[str, int])
        words.key_by(lambda pair: pair[0], key_type=str).sum(1).uid(uid).print()
        return environment.execute(name)

    def cancel(self) -> None:
        """Press Ctrl-C, unless this job has had it already: a second one ends this process at once, without a word."""
        if not self.watcher.is_cancelled and signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
            self.watcher.is_cancelled = True
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def _server(*lines: str) -> Iterator[int]:
    """A server on loopback that says these lines to whoever comes, and keeps the line open."""
    clients: list[socket.socket] = []
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return  # the test is over
                clients.append(client)
                client.sendall("".join(f"{line}\n" for line in lines).encode())

        thread = threading.Thread(target=serve, name="line-server")
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for client in clients:
                client.close()


LineServer = Callable[..., AbstractContextManager[int]]


@pytest.fixture
def line_server() -> LineServer:
    """Called with lines, a server on loopback that says them to whoever comes; gives the port."""
    return _server


@pytest.fixture(scope="session")
def _spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture
def spark(_spark_directory: Path) -> SparkSession:
    """The session of this test process, made again should a test have stopped it."""
    from checkdam.runtime.spark.session import spark_session

    return spark_session({"spark.master": "local[2]"}, str(_spark_directory))


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Iterator[Jobs]:
    yield Jobs(tmp_path)
    set_launch(None)
    assert spark.sparkContext._jsc is not None, "a job stopped a session that it had not made"


@pytest.fixture(scope="module", autouse=True)
def _functions_travel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers and slots cannot import a test module, so what it defines is sent to them whole."""
    import pyspark.cloudpickle

    module = request.module
    assert isinstance(module, ModuleType)
    assert sys.modules[module.__name__] is module
    for pickler in (cloudpickle, pyspark.cloudpickle):
        pickler.register_pickle_by_value(module)
    yield
    for pickler in (cloudpickle, pyspark.cloudpickle):
        pickler.unregister_pickle_by_value(module)
