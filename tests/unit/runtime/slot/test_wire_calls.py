"""The driver's calls of a slot, over the real wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.support.word_count import WordCount

from checkdam.backends import HashMapStateBackend
from checkdam.checkpoint.savepoints import SavepointDirectory
from checkdam.errors import SlotLostError
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, SubtaskIndex
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.state.snapshot_handles import SavepointFormat

ONE, TWO = CheckpointId(1), CheckpointId(2)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[RemoteSlot]:
    """A slot that listens on a socket and stands at epoch 4, with a place for checkpoints."""
    location = f"grpc+unix://{tmp_path}/s"
    server = SlotServer(location, "token")
    remote = RemoteSlot(SlotAddress(SubtaskIndex(0), location, "here", 0), "token")
    words = WordCount([["a"]])
    remote.configure(
        SlotSetup(
            JobId("a" * 32),
            Attempt("try"),
            SubtaskIndex(0),
            words.job(parallelism=1).job().plan.for_slots(),
            HashMapStateBackend(),
            Epoch(4),
            str(tmp_path / "checkpoints"),
        )
    )
    yield remote
    remote.close()
    remote.disconnect()
    server.stopped.set()
    server.shutdown()


@pytest.mark.parametrize("format", SavepointFormat)
def test_a_savepoint_is_sealed_written_and_released(slot: RemoteSlot, tmp_path: Path, format: SavepointFormat) -> None:
    place = SavepointDirectory.prepare(str(tmp_path / "savepoints"), JobId("a" * 32))

    slot.begin_snapshot(ONE, Epoch(4), savepoint=place.target(format))
    snapshot = slot.snapshot(ONE)
    slot.released(ONE)

    assert {operator.uid for operator in snapshot.operators} == {"count", "out"}
    assert not (tmp_path / "checkpoints").exists()


def test_an_aborted_savepoint_takes_its_directory_with_it(slot: RemoteSlot, tmp_path: Path) -> None:
    place = SavepointDirectory.prepare(str(tmp_path / "savepoints"), JobId("a" * 32))
    slot.begin_snapshot(ONE, Epoch(4), savepoint=place.target(SavepointFormat.CANONICAL))

    slot.aborted(ONE)
    slot.begin_snapshot(TWO, Epoch(4), savepoint=place.target(SavepointFormat.CANONICAL))
    slot.snapshot(TWO)  # written after the first was undone

    assert list((tmp_path / "savepoints").iterdir()) == []


def test_a_full_checkpoint_can_be_asked_for_and_another_epoch_cannot(slot: RemoteSlot) -> None:
    assert slot.begin_snapshot(ONE, Epoch(4), full=True) > 0
    slot.snapshot(ONE)

    with pytest.raises(SlotLostError, match="epoch 3"):
        slot.begin_snapshot(TWO, Epoch(3), full=True)


def test_the_driver_gets_an_error_before_it_is_logged_since_a_disk_may_hang(tmp_path: Path) -> None:
    server = SlotServer(f"grpc+unix://{tmp_path}/s", "token")
    order: list[str] = []

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            order.append("logged")

    handler = Noted()
    logging.getLogger("checkdam.runtime.slot.slot_server").addHandler(handler)
    descriptor = SimpleNamespace(command=msgspec.msgpack.encode((0, 5)))
    writer = SimpleNamespace(write_metadata=lambda error: order.append("sent"))
    try:
        server.do_exchange(None, descriptor, iter(()), writer)  # fails: the slot is not configured
    finally:
        logging.getLogger("checkdam.runtime.slot.slot_server").removeHandler(handler)
        server.shutdown()

    assert order == ["sent", "logged"]
