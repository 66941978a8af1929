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
    """Serve until `close` is called. Standard input has the startup arguments; the ready pipe gets the address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    signal.signal(signal.SIGTERM, _leave_to_driver)  # unlike SIG_IGN not inherited by processes that a function starts
    gc.set_threshold(400_000, 20, 20)  # state is mostly long-lived: frequent collections find nothing
    orders = json.loads(sys.stdin.readline())
    when_any_exits(orders["parents"], lambda: os._exit(1))
    heartbeat = msgspec.convert(orders["heartbeat"], Heartbeat)
    server = SlotServer(orders["location"], orders["token"], heartbeat)
    server.on_await = StackDump(orders["location"], heartbeat.timeout).put_off
    with os.fdopen(orders["ready_fd"], "w") as ready:
        ready.write(json.dumps({"port": server.port, "pid": os.getpid()}))
    if not server.configured.wait(_ORPHAN_SECONDS):
        os._exit(1)  # a sibling failed to start, and the driver does not know this slot
    threading.Thread(target=_watch_driver, args=(server, heartbeat), daemon=True, name="driver-watch").start()
    server.stopped.wait()
    server.shutdown()


def _leave_to_driver(number: int, frame: object) -> None:
    """Ignore SIGTERM: a supervisor sends it to all processes, and the driver needs this one to save its state."""


def _watch_driver(server: SlotServer, heartbeat: Heartbeat) -> None:
    """End when the driver is stopped or unreachable, even if closing this slot hangs."""
    server.silence.wait(until=threading.Event())
    sys.stderr.write(f"slot process {os.getpid()} ends: nothing heard from its driver for {heartbeat.timeout}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
