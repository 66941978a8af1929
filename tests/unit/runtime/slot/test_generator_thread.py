"""The thread of a generator: that it ends, whatever it is doing at that moment."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest

from checkdam.clock import SystemClock
from checkdam.runtime.slot import generator_thread
from checkdam.runtime.slot.generator_thread import GeneratorThread

PATIENCE = 30.0


def test_an_exception_raised_while_it_waits_for_the_lock_leaves_the_lock_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_thread, "MOST_SECONDS", 0.02)
    gate = threading.Event()

    def run() -> Iterator[int]:
        gate.wait()
        yield 1

    thread: GeneratorThread[None] = GeneratorThread("it", run, SystemClock())
    assert thread.take().records == []
    thread.interrupt()
    with thread._changed:  # as raise_inside does, while the generator comes to its yield
        gate.set()
        threading.Event().wait(0.2)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread._thread.ident or 0), ctypes.py_object(GeneratorExit)
        )

    thread._thread.join(PATIENCE)
    assert not thread._thread.is_alive()
    assert thread._changed.acquire(blocking=False)
