"""Starts slots: one small Spark job whose tasks leave a process behind on their executor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from pyspark.sql import SparkSession

from checkdam.ids import Attempt, SubtaskIndex
from checkdam.processes import parent_of
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.runtime.slot.slot_client import SlotAddress


@dataclass(frozen=True)
class SlotOutput:
    """The log files of a slot, and the marker of lines that standard error shows as well."""

    logs: LogSettings
    marker: str


@dataclass(frozen=True)
class SlotTokens:
    """The tokens that a slot accepts: of the driver and its tasks, and of clients that only ask for live state."""

    token: str = field(repr=False)
    queries: str = field(repr=False)

    @classmethod
    def new(cls) -> SlotTokens:
        return cls(secrets.token_hex(16), secrets.token_hex(16))


def start_slots(
    session: SparkSession,
    count: int,
    attempt: Attempt,
    tokens: SlotTokens,
    sockets: str | None,
    heartbeat: Heartbeat,
    output: SlotOutput | None = None,
) -> list[SlotAddress]:
    """Start one slot per subtask, on Unix sockets in the given directory, or on TCP if slots are on other machines.

    Without `output` a slot writes no log files, and its output is that of its Spark task.
    """
    driver = os.getpid() if sockets is not None else None
    context = session.sparkContext
    driver_host = context.getConf().get("spark.driver.host") or "127.0.0.1"

    def start(indexes: Iterable[int]) -> Iterator[SlotAddress]:
        for index in indexes:
            if sockets:
                locations = f"grpc+unix://{sockets}/{attempt}-{index}.sock", f"unix:{sockets}/{attempt}-{index}.q"
            else:
                host = _own_address(driver_host)
                locations = f"grpc+tcp://{host}:0", f"tcp:{host}:0"
            yield _start_slot(SubtaskIndex(index), locations, tokens, driver, heartbeat, output)

    context.setJobDescription("start slots")
    addresses = context.parallelize(range(count), count).mapPartitions(start).collect()
    context.setJobDescription(None)
    return sorted(addresses, key=lambda address: address.subtask)


def _start_slot(
    index: SubtaskIndex,
    locations: tuple[str, str],
    tokens: SlotTokens,
    driver: int | None,
    heartbeat: Heartbeat,
    output: SlotOutput | None,
) -> SlotAddress:
    """Start a slot from a Spark task: worker ← daemon ← executor. The slot lives as long as the executor.

    `locations` are those of its service and of its socket for queries; port 0 stands for any free one.
    """
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
            "location": locations[0],
            "token": tokens.token,
            "query_location": locations[1],
            "query_token": tokens.queries,
            "ready_fd": ready_fd,
            "heartbeat": msgspec.to_builtins(heartbeat),
            "subtask": index,
            "logs": msgspec.to_builtins(output.logs) if output is not None else None,
            "marker": output.marker if output is not None else "",
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders) + "\n")
        process.stdin.close()
        said = answer.read()
    if not said:
        raise RuntimeError(f"slot {index} did not start on {host} (exit code {process.wait()})")
    started = json.loads(said)
    service, queries = locations
    if service.startswith("grpc+tcp"):
        service = service.rpartition(":")[0] + f":{started['port']}"
        queries = queries.rpartition(":")[0] + f":{started['query_port']}"
    return SlotAddress(index, service, host, started["pid"], queries)


def _own_address(driver: str) -> str:
    """Return this machine's address on the route to the driver, by which the driver's other machines reach it too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((driver, 9))  # a datagram socket: nothing is sent
        return str(probe.getsockname()[0])
