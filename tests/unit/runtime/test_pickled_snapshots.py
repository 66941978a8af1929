"""A snapshot whose values are pickles that run code: nothing unpickles them unless the job declares them so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checkdam import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    PickleType,
    ProcessContext,
    RocksDBStateBackend,
    RuntimeContext,
    ValueStateDescriptor,
)
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.cli.main import command_line
from checkdam.errors import StateNotRestorableError
from checkdam.storage.filesystem import open_storage
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.types.type_info import Kind, fields_of, named_tuple_type

KEPT = CheckpointConfig(timedelta(0), retention=CheckpointRetention.RETAIN_ON_CANCELLATION, num_retained=9)


class Bomb:
    """Makes a directory when it is unpickled, once it is armed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __reduce__(self) -> tuple[object, ...]:
        return _go_off, (self._directory,)


def _go_off(directory: Path) -> Bomb:
    """Not in the job that writes the snapshot: it copies its own values by pickling them."""
    if directory.parent.joinpath("armed").exists():
        directory.mkdir(exist_ok=True)
    return Bomb(directory)


class Keep(KeyedProcessFunction, CheckpointedFunction):
    """Keeps one value a key, and one of the subtask; of no type: none."""

    def __init__(self, of: Any, make: Callable[[], Any]) -> None:
        self._of = of
        self._make = make

    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        if self._of is not None:
            self._list = ctx.operator_state_store.get_list_state(ListStateDescriptor("kept by all", self._of))

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None:
        if self._of is not None:
            self._list.update([self._make()])

    def open(self, ctx: RuntimeContext) -> None:
        if self._of is not None:
            self._kept = ctx.get_state(ValueStateDescriptor("kept", self._of))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        if self._of is not None:
            self._kept.value()
            self._kept.update(self._make())
        yield value


def _run(storage: Path, backend: KeyedStateBackend, of: Any, make: Callable[[], Any], epochs: int) -> list[str]:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        words = stream.key_by(lambda word: word, key_type=str)
        words.process(Keep(of, make), output_type=str).uid("keep").print()

    job = LocalJob(build, [["a"]] * epochs, open_storage(str(storage)), parallelism=1, checkpoints=KEPT)
    return job.run().printed_lines


@pytest.fixture(params=[HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    found: KeyedStateBackend = request.param
    return found


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """What is there once the bomb was unpickled."""
    return tmp_path / "ran"


@pytest.fixture
def snapshot(tmp_path: Path, backend: KeyedStateBackend, ran: Path) -> Path:
    """A directory of checkpoints that hold the bomb."""
    storage = tmp_path / "checkpoints"
    storage.mkdir()
    _run(storage, backend, PickleType(Bomb), lambda: Bomb(ran), 1)
    (tmp_path / "armed").touch()
    return storage


class Other:
    pass


@pytest.mark.parametrize("of", [int, str, bytes, tuple[bytes], list[bytes], PickleType(Other)], ids=str)
def test_a_job_that_declares_another_type_is_refused_and_runs_nothing(
    snapshot: Path, backend: KeyedStateBackend, ran: Path, of: Any
) -> None:
    with pytest.raises(StateNotRestorableError, match=r"pickle\[Bomb\]"):
        _run(snapshot, backend, of, object, 2)

    assert not ran.exists()


def test_a_job_that_does_not_ask_for_the_state_carries_it_on_as_bytes(
    snapshot: Path, backend: KeyedStateBackend, ran: Path
) -> None:
    assert _run(snapshot, backend, None, object, 2) == ["a"]

    assert not ran.exists()


def test_a_job_that_declares_it_pickled_unpickles_it(snapshot: Path, backend: KeyedStateBackend, ran: Path) -> None:
    _run(snapshot, backend, PickleType(Bomb), lambda: Bomb(ran), 2)

    assert ran.exists()


def test_readers_show_it_as_bytes(snapshot: Path, ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(next((snapshot / JOB_ID).glob("chk-*")))

    for words in (
        ["inspect", checkpoint],
        ["inspect", checkpoint, "--json"],
        ["state", "ls", checkpoint, "--json"],
        ["state", "show", checkpoint, "keep", "kept"],
        ["state", "show", checkpoint, "keep", "kept by all"],
        ["state", "diff", checkpoint, checkpoint],
    ):
        assert command_line(words) == 0
    capsys.readouterr()
    assert command_line(["state", "show", checkpoint, "keep", "kept", "--json"]) == 0

    assert "key" in json.loads(capsys.readouterr().out)
    assert not ran.exists()


@pytest.mark.parametrize(
    "of", [pa.binary(), pa.large_binary(), pa.string(), pa.list_(pa.binary()), pa.struct([("a", pa.binary())])]
)
def test_no_column_of_a_source_is_ever_taken_for_a_pickled_value(of: pa.DataType) -> None:
    kinds = {each.kind for each in fields_of(named_tuple_type(pa.schema([("column", of)])))}

    assert not kinds & {Kind.OPAQUE, Kind.PICKLE}
