"""The settings of heartbeats, and how silence is measured."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.runtime.heartbeat import Heartbeat, Silence


def test_the_settings_have_flinks_names_and_defaults() -> None:
    given = Configuration.load(None, {"heartbeat.interval": "500 ms", "heartbeat.timeout": "2s"})

    assert Heartbeat.from_configuration(given) == Heartbeat(timedelta(seconds=0.5), timedelta(seconds=2))
    assert Heartbeat.from_configuration(Configuration()) == Heartbeat(timedelta(seconds=10), timedelta(seconds=50))


@pytest.mark.parametrize("timeout", ["10s", "9s"])
def test_a_timeout_that_is_not_longer_than_the_interval_is_refused(timeout: str) -> None:
    given = Configuration.load(None, {"heartbeat.timeout": timeout})

    with pytest.raises(ConfigError, match=r"heartbeat\.timeout .* must be longer than heartbeat\.interval \(10 s\)"):
        Heartbeat.from_configuration(given)


def test_an_interval_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval is zero"):
        Heartbeat(interval=timedelta(0))


class _Steps(threading.Event):
    """Stands in for the passing of time: each wait is one step, whatever it takes."""

    def __init__(self, silence: Silence, heard_before: int) -> None:
        super().__init__()
        self._silence = silence
        self._heard_before = heard_before
        self.steps = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.steps += 1
        if self.steps <= self._heard_before:
            self._silence.heard()
        return self.is_set()


def test_silence_is_counted_from_the_last_time_that_something_was_heard() -> None:
    silence = Silence(timedelta(seconds=50))
    steps = _Steps(silence, heard_before=7)

    assert silence.wait(until=steps)

    assert steps.steps == 7 + 10  # and not by the clock: a process that was stopped has not listened


def test_waiting_for_silence_ends_when_it_is_told_to() -> None:
    stopped = threading.Event()
    stopped.set()

    assert not Silence(timedelta(seconds=50)).wait(until=stopped)
