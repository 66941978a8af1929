"""What follows a failure: how often, and after which wait, a job is started again."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from checkdam import config
from checkdam.clock import Clock
from checkdam.config import Configuration
from checkdam.errors import ConfigError


class RestartPolicy(Protocol):
    """The failures of one job, seen through its strategy."""

    def on_failure(self) -> timedelta | None:
        """Count a failure; returns the wait before the restart, None to give up."""


class RestartStrategy(Protocol):
    """A choice of the user; plain data."""

    def begin(self, clock: Clock) -> RestartPolicy:
        """A fresh count of failures."""


@dataclass(frozen=True)
class NoRestart:
    """The first failure ends the job."""

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FixedDelay(FixedDelayRestart(attempts=0))


@dataclass(frozen=True)
class FixedDelayRestart:
    """Restart up to `attempts` times in the life of the job, always after the same wait."""

    attempts: int = 1
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check(self, "attempts", self.attempts >= 0, "zero or more")
        _check(self, "delay", self.delay >= timedelta(0), "zero or more")

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FixedDelay(self)


@dataclass(frozen=True)
class ExponentialDelayRestart:
    """Restart after a wait that grows with each failure, and starts over after a time of calm.

    The wait is `initial_backoff` times `backoff_multiplier` for each earlier failure, at most `max_backoff`, moved up
    or down by a random share of up to `jitter_factor`. Calm is a time of `reset_backoff_threshold` since the last
    restart. With `attempts_before_reset_backoff`, more failures than that without calm end the job.
    """

    initial_backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(minutes=1)
    backoff_multiplier: float = 1.5
    reset_backoff_threshold: timedelta = timedelta(hours=1)
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int | None = None

    def __post_init__(self) -> None:
        _check(self, "initial_backoff", self.initial_backoff > timedelta(0), "more than zero")
        _check(self, "max_backoff", self.max_backoff >= self.initial_backoff, "initial_backoff or more")
        _check(self, "backoff_multiplier", self.backoff_multiplier >= 1, "1 or more")
        _check(self, "reset_backoff_threshold", self.reset_backoff_threshold > timedelta(0), "more than zero")
        _check(self, "jitter_factor", 0 <= self.jitter_factor <= 1, "from 0 to 1")
        attempts = self.attempts_before_reset_backoff
        _check(self, "attempts_before_reset_backoff", attempts is None or attempts >= 1, "1 or more, or None")

    def begin(self, clock: Clock, rng: random.Random | None = None) -> RestartPolicy:
        return _ExponentialDelay(self, clock, rng or random.Random())


@dataclass(frozen=True)
class FailureRateRestart:
    """Restart as long as no more than `max_failures` fall within `interval`."""

    max_failures: int = 1
    interval: timedelta = timedelta(minutes=1)
    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check(self, "max_failures", self.max_failures >= 1, "1 or more")
        _check(self, "interval", self.interval > timedelta(0), "more than zero")
        _check(self, "delay", self.delay >= timedelta(0), "zero or more")

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FailureRate(self, clock)


def restart_strategy_from(configuration: Configuration, *, checkpointing: bool) -> RestartStrategy:
    """The strategy the settings ask for; unset, as in Flink: exponential delay with checkpoints, none without."""
    kind = configuration.get(config.RESTART_STRATEGY) or ("exponential-delay" if checkpointing else "none")
    match kind:
        case "fixed-delay":
            return FixedDelayRestart(
                attempts=configuration.get(config.FIXED_DELAY_ATTEMPTS), delay=configuration.get(config.FIXED_DELAY)
            )
        case "exponential-delay":
            return ExponentialDelayRestart(
                initial_backoff=configuration.get(config.INITIAL_BACKOFF),
                max_backoff=configuration.get(config.MAX_BACKOFF),
                backoff_multiplier=configuration.get(config.BACKOFF_MULTIPLIER),
                reset_backoff_threshold=configuration.get(config.RESET_BACKOFF_THRESHOLD),
                jitter_factor=configuration.get(config.JITTER_FACTOR),
                attempts_before_reset_backoff=configuration.get(config.BACKOFF_ATTEMPTS),
            )
        case "failure-rate":
            return FailureRateRestart(
                max_failures=configuration.get(config.MAX_FAILURES_PER_INTERVAL),
                interval=configuration.get(config.FAILURE_RATE_INTERVAL),
                delay=configuration.get(config.FAILURE_RATE_DELAY),
            )
    return NoRestart()


class _FixedDelay:
    def __init__(self, strategy: FixedDelayRestart) -> None:
        self._strategy = strategy
        self._failures = 0

    def on_failure(self) -> timedelta | None:
        self._failures += 1
        return self._strategy.delay if self._failures <= self._strategy.attempts else None


class _ExponentialDelay:
    def __init__(self, strategy: ExponentialDelayRestart, clock: Clock, rng: random.Random) -> None:
        self._strategy = strategy
        self._clock = clock
        self._rng = rng
        self._attempts = 0
        self._backoff = strategy.initial_backoff
        self._restarted = clock.monotonic()

    def on_failure(self) -> timedelta | None:
        strategy = self._strategy
        now = self._clock.monotonic()
        if now - self._restarted >= strategy.reset_backoff_threshold.total_seconds():
            self._attempts = 0
            self._backoff = strategy.initial_backoff
        attempts = strategy.attempts_before_reset_backoff
        if attempts is not None and self._attempts >= attempts:
            return None
        self._attempts += 1

        jitter = self._rng.uniform(-strategy.jitter_factor, strategy.jitter_factor)
        wait = min(max(self._backoff * (1 + jitter), strategy.initial_backoff), strategy.max_backoff)
        growth = min(strategy.backoff_multiplier, strategy.max_backoff / self._backoff)  # never overflows
        self._backoff = self._backoff * growth
        self._restarted = now + wait.total_seconds()
        return wait


class _FailureRate:
    def __init__(self, strategy: FailureRateRestart, clock: Clock) -> None:
        self._strategy = strategy
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=strategy.max_failures + 1)

    def on_failure(self) -> timedelta | None:
        now = self._clock.monotonic()
        self._failures.append(now)
        too_many = len(self._failures) > self._strategy.max_failures
        if too_many and now - self._failures[0] <= self._strategy.interval.total_seconds():
            return None
        return self._strategy.delay


def _check(strategy: object, name: str, holds: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(
            f"{type(strategy).__name__}: {name} is {getattr(strategy, name)!r}", hint=f"It must be {allowed}."
        )
