"""The slot process: `python -m checkdam.runtime.slot`, started by a Spark task.

It ends on the call `close`, with its executor or driver, and when its driver is silent.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading

import msgspec

from checkdam.processes import when_any_exits
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.runtime.slot.stack_dump import StackDump

_ORPHAN_SECONDS = 120.0


def main() -> None:
    """Serve until told to close. Standard input brings the orders, the ready pipe takes the address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGTERM, _leave_to_driver)  # unlike SIG_IGN not inherited by what a function may start
    gc.set_threshold(100_000, 20, 20)  # state is mostly long-lived: looking through it often finds nothing
    orders = json.loads(sys.stdin.readline())
    when_any_exits(orders["parents"], lambda: os._exit(1))
    heartbeat = msgspec.convert(orders["heartbeat"], Heartbeat)
    server = SlotServer(orders["location"], orders["token"], heartbeat)
    server.on_await = StackDump(orders["location"], heartbeat.timeout).put_off
    with os.fdopen(orders["ready_fd"], "w") as ready:
        ready.write(json.dumps({"port": server.port, "pid": os.getpid()}))
    if not server.configured.wait(_ORPHAN_SECONDS):
        os._exit(1)  # a sibling failed to start, and nobody knows of this slot
    threading.Thread(target=_watch_driver, args=(server, heartbeat), daemon=True, name="driver-watch").start()
    server.stopped.wait()
    server.shutdown()


def _leave_to_driver(number: int, frame: object) -> None:
    """Go on: a supervisor tells every process of a job to go, and the driver still needs this one to save its state."""


def _watch_driver(server: SlotServer, heartbeat: Heartbeat) -> None:
    """End with a driver that is stopped, or cannot be reached; also when the end of this slot hangs."""
    server.silence.wait(until=threading.Event())
    sys.stderr.write(f"slot process {os.getpid()} ends: nothing heard from its driver for {heartbeat.timeout}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
