"""How a slot process ends by itself."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.slot import __main__ as slot_process


def test_a_slot_without_a_driver_ends_although_nobody_takes_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    can_go_on, has_ended = threading.Event(), threading.Event()

    class Paused(io.StringIO):
        def write(self, text: str) -> int:
            can_go_on.wait()
            return len(text)

        def flush(self) -> None:
            can_go_on.wait()

    monkeypatch.setattr(sys, "stderr", Paused())
    monkeypatch.setattr(os, "_exit", lambda code: has_ended.set())
    monkeypatch.setattr(slot_process, "_LAST_WORDS_SECONDS", 0.01)
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("checkdam.runtime.slot").addHandler(handler)
    server: Any = SimpleNamespace(silence=SimpleNamespace(wait=lambda until: None))
    try:
        watch = threading.Thread(target=slot_process._watch_driver, args=(server, Heartbeat()), daemon=True)
        watch.start()
        assert has_ended.wait(5)
    finally:
        logging.getLogger("checkdam.runtime.slot").removeHandler(handler)
        can_go_on.set()
        watch.join(5)
