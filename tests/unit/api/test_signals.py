"""The signal handlers of a job are there while it runs, and gone afterwards."""

from __future__ import annotations

import signal
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checkdam.api.signals import ended_by_signals
from checkdam.runtime.driver.job_master import JobMaster

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def master() -> JobMaster:
    return cast("JobMaster", SimpleNamespace(cancel=lambda: None, suspend=lambda grace: None))


def test_handlers_are_those_of_the_job_only_while_it_runs() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]

    with ended_by_signals(master(), timedelta(seconds=1)):
        inside = [signal.getsignal(number) for number in SIGNALS]

    assert set(map(id, before)).isdisjoint(map(id, inside))
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_ctrl_c_in_the_moment_the_job_has_ended_leaves_none_of_its_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    change = signal.signal

    def change_and_be_interrupted(number: int, handler: Any) -> Any:
        changed = change(number, handler)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        return changed

    with pytest.raises(KeyboardInterrupt), ended_by_signals(master(), timedelta(seconds=1)):
        monkeypatch.setattr(signal, "signal", change_and_be_interrupted)

    assert [signal.getsignal(number) for number in SIGNALS] == before
