"""Questions on the wire: the real server and client of a slot, beside a thread that holds the lock of its records."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.word_count import UID, WordCount

from checkdam.errors import SlotLostError
from checkdam.ids import Attempt, Epoch, SubtaskIndex
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_messages import (
    Answer,
    Ask,
    FoundKeys,
    FoundStates,
    GetKeys,
    ListStates,
    pack,
    unpack_answers,
)
from checkdam.runtime.live_state.query_server import QueryServer
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info

ASK = GetKeys(UID, "_op_state", [serializer(type_info(str)).encode_key("a")])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlotServer]:
    before = sys.getswitchinterval()
    server = SlotServer(f"grpc+unix://{tmp_path}/s", "token")
    queries = QueryServer(QueryAccess(f"unix:{tmp_path}/q", "only to ask"), server.answer_queries)
    yield server
    sys.setswitchinterval(before)
    server.stopped.set()
    queries.close()
    server.shutdown()


@pytest.fixture
def slot(server: SlotServer, tmp_path: Path) -> Iterator[RemoteSlot]:
    """One that has ended its first epoch, without records."""
    words = WordCount([["a"]])
    job = words.job(parallelism=1).job()
    address = SlotAddress(SubtaskIndex(0), f"grpc+unix://{tmp_path}/s", "localhost", 0, f"unix:{tmp_path}/q")
    slot = RemoteSlot(address, "token", query_token="only to ask")
    slot.configure(
        SlotSetup(
            job_id=job.job_id,
            attempt=Attempt("a1"),
            subtask=SubtaskIndex(0),
            plan=job.plan.for_slots(),
            backend=job.backend,
            last_epoch=Epoch(0),
            storage=None,
        )
    )
    slot.end_epoch(Epoch(1), commit=False)
    yield slot
    slot.disconnect()


def asked(slot: RemoteSlot, *asks: Ask) -> list[Answer]:
    return unpack_answers(slot.query(pack(list(asks))))


def test_questions_and_answers_travel(slot: RemoteSlot) -> None:
    assert asked(slot, ASK) == [FoundKeys(1, [None])]
    [states, keys] = asked(slot, ListStates(), ASK)
    assert isinstance(states, FoundStates)
    assert [(facts.uid, facts.name) for facts in states.states] == [(UID, "_op_state")]
    assert keys == FoundKeys(1, [None])


def test_processing_does_not_hold_up_questions(server: SlotServer, slot: RemoteSlot) -> None:
    asked(slot, ASK)  # the first one has found the lock free
    taken, done = threading.Event(), threading.Event()

    def process() -> None:
        with server._lock:
            taken.set()
            done.wait(30)

    processing = threading.Thread(target=process)
    processing.start()
    assert taken.wait(30)
    try:
        assert asked(slot, ASK) == [FoundKeys(1, [None])]
    finally:
        done.set()
        processing.join()


def test_while_there_are_readers_python_changes_threads_sooner(slot: RemoteSlot) -> None:
    before = sys.getswitchinterval()

    asked(slot, ASK)

    assert sys.getswitchinterval() < before


def test_a_slot_that_is_told_to_close_ends_though_it_was_asked(server: SlotServer, slot: RemoteSlot) -> None:
    asked(slot, ASK)

    slot.close()

    assert server.stopped.is_set()
    assert slot._queries is None
    with pytest.raises(SlotLostError):
        slot.query(pack([ASK]))


def test_a_slot_that_ends_answers_no_more(server: SlotServer, slot: RemoteSlot) -> None:
    asked(slot, ASK)
    server.stopped.set()

    with pytest.raises(SlotLostError):
        _ask_twice(slot)  # what it was waiting for when it was told to end, it may still answer


def _ask_twice(slot: RemoteSlot) -> None:
    for _ in range(2):
        slot.query(pack([ASK]))


def test_a_slot_that_does_not_answer_does_not_hold_up_whoever_disconnects(server: SlotServer, slot: RemoteSlot) -> None:
    asked(slot, ASK)
    assert server._task is not None
    has_come, go_on = threading.Event(), threading.Event()

    def wait(request: bytes, processing: object) -> bytes:
        has_come.set()
        assert go_on.wait(30)
        return b""

    server._task.queries.answer = wait  # type: ignore[method-assign]
    lost: list[SlotLostError] = []

    def ask() -> None:
        try:
            slot.query(b"anything")
        except SlotLostError as error:
            lost.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert has_come.wait(30)
    leaving = threading.Thread(target=slot.disconnect)
    leaving.start()
    leaving.join(10)
    is_stuck = leaving.is_alive()
    go_on.set()
    asking.join(30)

    assert not is_stuck
    assert len(lost) == 1
