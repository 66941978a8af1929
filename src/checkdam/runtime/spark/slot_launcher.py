"""Starts slots: one small Spark job whose tasks leave a process behind on their executor."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator

import msgspec
from pyspark.sql import SparkSession

from checkdam.ids import Attempt, SubtaskIndex
from checkdam.processes import parent_of
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.slot.slot_client import SlotAddress


def start_slots(
    session: SparkSession, count: int, attempt: Attempt, token: str, sockets: str | None, heartbeat: Heartbeat
) -> list[SlotAddress]:
    """Start one slot per subtask, on Unix sockets in the given directory, or on TCP if slots are on other machines."""
    driver = os.getpid() if sockets is not None else None
    context = session.sparkContext
    driver_host = context.getConf().get("spark.driver.host") or "127.0.0.1"

    def start(indexes: Iterable[int]) -> Iterator[SlotAddress]:
        for index in indexes:
            location = (
                f"grpc+unix://{sockets}/{attempt}-{index}.sock"
                if sockets
                else f"grpc+tcp://{_own_address(driver_host)}:0"
            )
            yield _start_slot(SubtaskIndex(index), location, token, driver, heartbeat)

    context.setJobDescription("start slots")
    addresses = context.parallelize(range(count), count).mapPartitions(start).collect()
    context.setJobDescription(None)
    return sorted(addresses, key=lambda address: address.subtask)


def _start_slot(
    index: SubtaskIndex, location: str, token: str, driver: int | None, heartbeat: Heartbeat
) -> SlotAddress:
    """Start a slot from a Spark task: worker ← daemon ← executor. The slot lives as long as the executor."""
    executor = parent_of(os.getppid())
    host = os.uname().nodename
    ready, ready_fd = os.pipe()
    with os.fdopen(ready) as answer:
        process = subprocess.Popen(
            [sys.executable, "-m", "checkdam.runtime.slot"],
            stdin=subprocess.PIPE,
            pass_fds=[ready_fd],
            start_new_session=True,
            text=True,
        )
        os.close(ready_fd)
        orders = {
            "parents": [pid for pid in (executor, driver) if pid is not None],
            "location": location,
            "token": token,
            "ready_fd": ready_fd,
            "heartbeat": msgspec.to_builtins(heartbeat),
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders) + "\n")
        process.stdin.close()
        said = answer.read()
    if not said:
        raise RuntimeError(f"slot {index} did not start on {host} (exit code {process.wait()})")
    started = json.loads(said)
    if location.startswith("grpc+tcp"):
        location = location.rpartition(":")[0] + f":{started['port']}"
    return SlotAddress(index, location, host, started["pid"])


def _own_address(driver: str) -> str:
    """Return this machine's address on the route to the driver, by which the driver's other machines reach it too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((driver, 9))  # a datagram socket: nothing is sent
        return str(probe.getsockname()[0])
