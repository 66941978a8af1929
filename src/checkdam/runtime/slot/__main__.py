"""The slot process: `python -m checkdam.runtime.slot`, started by a Spark task.

It ends on the call `close`, with its executor or driver, and when its driver is silent.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from checkdam.processes import when_any_exits
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_server import QueryServer
from checkdam.runtime.logs.log_reader import LogDirectory, slot_process
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.runtime.logs.process_logs import output_captured
from checkdam.runtime.slot.cycle_collection import search_rarely
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.runtime.slot.stack_dump import StackDump

_log = logging.getLogger("checkdam.runtime.slot")  # this module is "__main__"

_ORPHAN_SECONDS = 120.0
_LAST_WORDS_SECONDS = 1.0


def main() -> None:
    """Serve until `close` is called. Standard input has the startup arguments; the ready pipe gets the address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    signal.signal(signal.SIGTERM, _leave_to_driver)  # unlike SIG_IGN not inherited by processes that a function starts
    search_rarely()
    orders = json.loads(sys.stdin.readline())
    when_any_exits(orders["parents"], lambda: os._exit(1))
    if orders["logs"] is None:
        _serve(orders, None)
        return
    logs, subtask = msgspec.convert(orders["logs"], LogSettings), orders["subtask"]
    with output_captured(logs, slot_process(subtask), subtask, orders["marker"], is_until_end=True):
        _log.info("slot %d runs in process %d on %s", subtask, os.getpid(), os.uname().nodename)
        _serve(orders, LogDirectory(Path(logs.directory)))
        _log.info("slot %d ends in order", subtask)


def _serve(orders: Mapping[str, Any], logs: LogDirectory | None) -> None:
    heartbeat = msgspec.convert(orders["heartbeat"], Heartbeat)
    server = SlotServer(orders["location"], orders["token"], heartbeat, logs)
    server.on_await = StackDump(orders["location"], heartbeat.timeout).put_off
    queries = QueryServer(QueryAccess(orders["query_location"], orders["query_token"]), server.answer_queries)
    with os.fdopen(orders["ready_fd"], "w") as ready:
        ready.write(json.dumps({"port": server.port, "query_port": queries.port, "pid": os.getpid()}))
    if not server.configured.wait(_ORPHAN_SECONDS):
        os._exit(1)  # a sibling failed to start, and the driver does not know this slot
    threading.Thread(target=_watch_driver, args=(server, heartbeat), daemon=True, name="driver-watch").start()
    server.stopped.wait()
    queries.close()
    server.shutdown()


def _leave_to_driver(number: int, frame: object) -> None:
    """Ignore SIGTERM: a supervisor sends it to all processes, and the driver needs this one to save its state."""


def _watch_driver(server: SlotServer, heartbeat: Heartbeat) -> None:
    """End when the driver is stopped or unreachable, even if closing this slot hangs."""
    server.silence.wait(until=threading.Event())
    try:
        last_words = f"slot process {os.getpid()} ends: nothing heard from its driver for {heartbeat.timeout}"
        telling = threading.Thread(target=_log.error, args=(last_words,), daemon=True, name="last-words")
        telling.start()
        telling.join(_LAST_WORDS_SECONDS)  # no longer: a disk may hang, and nobody may read standard error
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
