"""The interval of heartbeats between driver and slots, and the silence after which one gives the other up."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta

from checkdam import config
from checkdam.config import Configuration
from checkdam.errors import ConfigError


@dataclass(frozen=True)
class Heartbeat:
    """The options of heartbeats, checked when built; the defaults are Flink's.

    Raises:
        ConfigError: the timeout is not longer than the interval, or the interval is zero.
    """

    interval: timedelta = config.HEARTBEAT_INTERVAL.default
    timeout: timedelta = config.HEARTBEAT_TIMEOUT.default

    def __post_init__(self) -> None:
        if not self.interval:
            raise ConfigError("heartbeat.interval is zero", hint='Write for example "10s".')
        if self.timeout <= self.interval:
            raise ConfigError(
                f"heartbeat.timeout ({_text(self.timeout)}) must be longer than "
                f"heartbeat.interval ({_text(self.interval)})",
                hint="Between two heartbeats there is always silence: allow for several of them.",
            )

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> Heartbeat:
        return cls(configuration.get(config.HEARTBEAT_INTERVAL), configuration.get(config.HEARTBEAT_TIMEOUT))

    @property
    def interval_seconds(self) -> float:
        return self.interval.total_seconds()

    @property
    def timeout_seconds(self) -> float:
        return self.timeout.total_seconds()


class Silence:
    """Measures silence: how long nothing was heard while this process itself ran.

    A process that was stopped for a minute did not listen for that minute.
    """

    _STEPS = 10  # a timeout is counted in this many steps; a step that takes too long still counts as one

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
        self._heard = threading.Event()

    def heard(self) -> None:
        self._heard.set()

    def wait(self, until: threading.Event) -> bool:
        """Wait until nothing was heard for the timeout. Return False if `until` is set before."""
        silent = 0
        while silent < self._STEPS:
            if until.wait(self._seconds / self._STEPS):
                return False
            silent = 0 if self._heard.is_set() else silent + 1
            self._heard.clear()
        return True


def _text(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
