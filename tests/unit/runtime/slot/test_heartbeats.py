"""Heartbeats between driver and slot: a real slot process, stopped by a signal, and calls that take long."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pytest
from tests.support.waiting import poll

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import SlotLostError
from checkdam.ids import Attempt, CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.exchange_rows import wire_before
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress, exchange, report_task
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.stalls import Stall
from checkdam.testing.local_job import Build, LocalJob

FAST = Heartbeat(timedelta(milliseconds=100), timedelta(seconds=1.5))
CALM = Heartbeat(timedelta(seconds=30), timedelta(seconds=60))

begun, gate = threading.Event(), threading.Event()


def enrich(word: str) -> str:
    begun.set()
    gate.wait(60)
    return word


def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.key_by(lambda word: word, key_type=str).map(enrich, output_type=str).name("enrich").print()


@contextmanager
def process(directory: Path, heartbeat: Heartbeat) -> Iterator[tuple[subprocess.Popen[str], RemoteSlot]]:
    """A slot process, as a Spark task starts it, and the driver's end of it."""
    location = f"grpc+unix://{directory}/s"
    ready, ready_fd = os.pipe()
    with (directory / "errors").open("w") as errors:
        slot = subprocess.Popen(
            [sys.executable, "-m", "checkdam.runtime.slot"],
            stdin=subprocess.PIPE,
            stderr=errors,
            pass_fds=[ready_fd],
            text=True,
        )
    os.close(ready_fd)
    orders = {
        "parents": [os.getpid()],
        "location": location,
        "token": "token",
        "query_location": f"unix:{directory}/q",
        "query_token": "only to ask",
        "ready_fd": ready_fd,
        "heartbeat": msgspec.to_builtins(heartbeat),
        "logs": None,
    }
    assert slot.stdin is not None
    slot.stdin.write(json.dumps(orders) + "\n")
    slot.stdin.close()
    with os.fdopen(ready) as answer:
        assert answer.read()
    remote = RemoteSlot(SlotAddress(SubtaskIndex(1), location, os.uname().nodename, slot.pid), "token", heartbeat)
    try:
        yield slot, remote
    finally:
        slot.kill()
        slot.wait()
        remote.disconnect()


def held(remote: RemoteSlot, beats: list[Beat]) -> tuple[threading.Thread, list[SlotLostError]]:
    """Hold the slot as an attempt does."""
    lost: list[SlotLostError] = []

    def hold() -> None:
        try:
            remote.hold(beats.append)
        except SlotLostError as error:
            lost.append(error)

    thread = threading.Thread(target=hold)
    thread.start()
    return thread, lost


@pytest.mark.slow
def test_a_slot_that_is_stopped_is_noticed_by_whoever_waits_for_it(tmp_path: Path) -> None:
    beats: list[Beat] = []

    with process(tmp_path, FAST) as (slot, remote):
        holding, lost = held(remote, beats)
        poll(lambda: len(beats) > 2)
        slot.send_signal(signal.SIGSTOP)
        with pytest.raises(SlotLostError, match=rf"slot 1 \(process {slot.pid} on .*\) has not answered for 1\.5 s"):
            remote.begin_snapshot(CheckpointId(1), Epoch(1))
        holding.join(30)
        remote.kill()
        slot.wait(30)

    assert [str(error) for error in lost] == [
        f"slot 1 (process {slot.pid} on {os.uname().nodename}) has not answered for 1.5 s"
    ]


@pytest.mark.slow
def test_a_slot_that_dies_is_noticed_at_once_whatever_the_heartbeat(tmp_path: Path) -> None:
    with process(tmp_path, CALM) as (slot, remote):
        holding, lost = held(remote, [])
        slot.kill()
        holding.join(30)

    assert "does not answer" in str(lost[0])


def configure(remote: RemoteSlot, build: Build = build) -> None:
    job = LocalJob(build, [["a"]], None, parallelism=1, record_type=str).job()
    remote.configure(
        SlotSetup(job.job_id, Attempt("a"), SubtaskIndex(0), job.plan.for_slots(), job.backend, Epoch(0), storage=None)
    )


@pytest.mark.slow
def test_a_slot_that_hears_nothing_from_its_driver_ends(tmp_path: Path) -> None:
    with process(tmp_path, FAST) as (slot, remote):
        configure(remote)  # and then the driver is stopped, or gone with its host

        assert slot.wait(30) == 1
    assert "nothing heard from its driver" in (tmp_path / "errors").read_text()


@pytest.mark.slow
def test_a_slot_that_is_held_lives(tmp_path: Path) -> None:
    with process(tmp_path, FAST) as (slot, remote):
        configure(remote)
        holding, lost = held(remote, [])
        with pytest.raises(subprocess.TimeoutExpired):
            slot.wait(2 * FAST.timeout_seconds)
        remote.close()
        holding.join(30)

        assert slot.wait(30) == 0
    assert lost == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[RemoteSlot]:
    """A slot in this process, with a function that waits at the gate."""
    begun.clear()
    gate.clear()
    location = f"grpc+unix://{tmp_path}/s"
    server = SlotServer(location, "token", FAST)
    remote = RemoteSlot(SlotAddress(SubtaskIndex(0), location, "here", 0), "token", FAST)
    configure(remote)
    yield remote
    gate.set()
    server.stopped.set()
    remote.disconnect()
    server.shutdown()


def send_one_record(remote: RemoteSlot, build: Build = build) -> threading.Thread:
    plan = LocalJob(build, [["a"]], None, parallelism=1, record_type=str).job().plan
    wire = wire_before(plan, 1)
    assert wire is not None
    [edge] = wire.edges
    batch = wire.pack(edge, pa.record_batch({"value": ["a"]}), None, None)
    thread = threading.Thread(
        target=lambda: _until_lost(exchange(remote.address, "token", 1, Epoch(1), batch.schema, [batch])), daemon=True
    )
    thread.start()
    return thread


def _until_lost(batches: Iterator[pa.RecordBatch]) -> None:
    with suppress(SlotLostError):
        list(batches)


def backtrack(word: str) -> str:
    re.match("(a+)+$", 40 * word + "b")  # takes years, and Python's lock all the time
    return word


def build_backtracking(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.key_by(lambda word: word, key_type=str).map(backtrack, output_type=str).print()


@pytest.mark.slow
def test_the_stack_of_a_slot_that_cannot_answer_is_told_all_the_same(tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        with process(tmp_path, FAST) as (_, remote):
            configure(remote, build_backtracking)
            beats: list[Beat] = []
            holding, lost = held(remote, beats)
            poll(lambda: len(beats) > 2)
            send_one_record(remote, build_backtracking)
            holding.join(30)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])

    assert "has not answered for 1.5 s, at:\n" in str(lost[0])
    assert "in backtrack" in str(lost[0])


def test_a_function_that_hangs_is_told_with_operator_and_stack(served: RemoteSlot) -> None:
    beats: list[Beat] = []
    held(served, beats)
    sending = send_one_record(served)
    assert begun.wait(30)

    poll(lambda: beats and beats[-1].stall is not None and beats[-1].stall.seconds > 0.2)
    stall = beats[-1].stall
    gate.set()
    sending.join(30)
    poll(lambda: beats[-1].stall is None)

    assert stall is not None
    assert stall.work == 'operator "enrich" in level 1 of epoch 1'
    assert "in enrich\n    gate.wait(60)" in stall.stack


@pytest.mark.slow
def test_a_call_may_take_longer_than_the_timeout_as_long_as_the_slot_answers(served: RemoteSlot) -> None:
    sending = send_one_record(served)
    assert begun.wait(30)
    reports: list[Any] = []
    ending = threading.Thread(target=lambda: reports.append(served.end_epoch(Epoch(1), commit=False)))
    ending.start()
    ending.join(1.2 * FAST.timeout_seconds)
    assert ending.is_alive()  # it waits for the level
    gate.set()
    sending.join(30)
    ending.join(30)

    assert [report.epoch for report in reports] == [1]


def test_a_spark_task_reports_through_a_slot(served: RemoteSlot) -> None:
    beats: list[Beat] = []
    held(served, beats)
    stall = Stall("the source side of epoch 3", 7.5, "at x")

    report_task(served.address, "token", "12", stall, 5.0)

    poll(lambda: beats and beats[-1].task_stall == stall)
