"""The slot process: `python -m checkdam.runtime.slot`, started by a Spark task, ended by close, or with its parents."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys

from checkdam.runtime.processes import when_any_exits
from checkdam.runtime.slot.server import SlotServer

_ORPHAN_SECONDS = 120.0


def main() -> None:
    """Serve until told to close. Standard input brings the orders, the ready pipe takes the address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    signal.signal(signal.SIGTERM, _leave_to_driver)  # unlike SIG_IGN not inherited by what a function may start
    gc.set_threshold(100_000, 20, 20)  # state is mostly long-lived: looking through it often finds nothing
    orders = json.loads(sys.stdin.readline())
    when_any_exits(orders["parents"], lambda: os._exit(1))
    server = SlotServer(orders["location"], orders["token"])
    with os.fdopen(orders["ready_fd"], "w") as ready:
        ready.write(json.dumps({"port": server.port, "pid": os.getpid()}))
    if not server.configured.wait(_ORPHAN_SECONDS):
        os._exit(1)  # a sibling failed to start, and nobody knows of this slot
    server.stopped.wait()
    server.shutdown()


def _leave_to_driver(number: int, frame: object) -> None:
    """Go on: a supervisor tells every process of a job to go, and the driver still needs this one to save its state."""


if __name__ == "__main__":
    main()
