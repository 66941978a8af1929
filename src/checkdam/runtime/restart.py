"""Restart strategies: how often, and after which delay, a job restarts after failures."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from checkdam import config
from checkdam.clock import Clock
from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.option_fields import OptionFields, option_field, options_from


@dataclass(frozen=True)
class Restart:
    """A restart that the strategy allows: `attempt` of at most `most`, as it counts them; None: any number."""

    delay: timedelta
    attempt: int = 1
    most: int | None = None

    @property
    def which(self) -> str:
        return f"attempt {self.attempt}" if self.most is None else f"attempt {self.attempt} of {self.most}"


class RestartPolicy(Protocol):
    """The failures of one job, judged by its strategy."""

    def on_failure(self) -> Restart | None:
        """Count a failure. Return the restart that follows, or None to give up."""


class RestartStrategy(Protocol):
    """A restart strategy the user chose; plain data."""

    def begin(self, clock: Clock) -> RestartPolicy:
        """Return a policy with no failures counted."""


@dataclass(frozen=True)
class NoRestart(OptionFields):
    """The first failure ends the job."""

    implies = ((config.RESTART_STRATEGY, "none"),)

    def __post_init__(self) -> None:
        self._fill()

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FixedDelay(FixedDelayRestart(attempts=0))


@dataclass(frozen=True)
class FixedDelayRestart(OptionFields):
    """Restart up to `attempts` times in the life of the job, always after the same wait."""

    implies = ((config.RESTART_STRATEGY, "fixed-delay"),)

    attempts: int = option_field(config.FIXED_DELAY_ATTEMPTS)
    delay: timedelta = option_field(config.FIXED_DELAY)

    def __post_init__(self) -> None:
        self._fill()
        _check(self, "attempts", lambda: self.attempts >= 0, "zero or more")
        _check(self, "delay", lambda: self.delay >= timedelta(0), "a timedelta of zero or more")

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FixedDelay(self)


@dataclass(frozen=True)
class ExponentialDelayRestart(OptionFields):
    """Restart after a delay that grows with each failure, and starts over after a quiet period.

    The delay is `initial_backoff` times `backoff_multiplier` for each earlier failure, at most `max_backoff`, moved up
    or down by a random share of up to `jitter_factor`. The quiet period is `reset_backoff_threshold` since the last
    restart. With `attempts_before_reset_backoff`, more failures than that without a quiet period end the job.
    """

    implies = ((config.RESTART_STRATEGY, "exponential-delay"),)

    initial_backoff: timedelta = option_field(config.INITIAL_BACKOFF)
    max_backoff: timedelta = option_field(config.MAX_BACKOFF)
    backoff_multiplier: float = option_field(config.BACKOFF_MULTIPLIER)
    reset_backoff_threshold: timedelta = option_field(config.RESET_BACKOFF_THRESHOLD)
    jitter_factor: float = option_field(config.JITTER_FACTOR)
    attempts_before_reset_backoff: int | None = option_field(config.BACKOFF_ATTEMPTS)

    def __post_init__(self) -> None:
        self._fill()
        _check(self, "initial_backoff", lambda: self.initial_backoff > timedelta(0), "a timedelta of more than zero")
        if self.names("initial_backoff", "max_backoff"):  # otherwise one of them may still come from the settings
            _check(self, "max_backoff", lambda: self.max_backoff >= self.initial_backoff, "initial_backoff or more")
        _check(self, "backoff_multiplier", lambda: self.backoff_multiplier >= 1, "1 or more")
        _check(
            self,
            "reset_backoff_threshold",
            lambda: self.reset_backoff_threshold > timedelta(0),
            "a timedelta of more than zero",
        )
        _check(self, "jitter_factor", lambda: 0 <= self.jitter_factor <= 1, "from 0 to 1")
        attempts = self.attempts_before_reset_backoff
        _check(self, "attempts_before_reset_backoff", lambda: attempts is None or attempts >= 1, "1 or more, or None")

    def begin(self, clock: Clock, rng: random.Random | None = None) -> RestartPolicy:
        return _ExponentialDelay(self, clock, rng or random.Random())


@dataclass(frozen=True)
class FailureRateRestart(OptionFields):
    """Restart as long as no more than `max_failures` fall within `interval`."""

    implies = ((config.RESTART_STRATEGY, "failure-rate"),)

    max_failures: int = option_field(config.MAX_FAILURES_PER_INTERVAL)
    interval: timedelta = option_field(config.FAILURE_RATE_INTERVAL)
    delay: timedelta = option_field(config.FAILURE_RATE_DELAY)

    def __post_init__(self) -> None:
        self._fill()
        _check(self, "max_failures", lambda: self.max_failures >= 1, "1 or more")
        _check(self, "interval", lambda: self.interval > timedelta(0), "a timedelta of more than zero")
        _check(self, "delay", lambda: self.delay >= timedelta(0), "a timedelta of zero or more")

    def begin(self, clock: Clock) -> RestartPolicy:
        return _FailureRate(self, clock)


_STRATEGIES: Mapping[str, type[NoRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart]] = {
    "none": NoRestart,
    "fixed-delay": FixedDelayRestart,
    "exponential-delay": ExponentialDelayRestart,
    "failure-rate": FailureRateRestart,
}


def settle_restart(configuration: Configuration, *, checkpointing: bool) -> Configuration:
    """Copy the settings with a strategy set: as in Flink, exponential delay with checkpoints, else none."""
    if configuration.get(config.RESTART_STRATEGY) is not None:
        return configuration
    return configuration.settled(config.RESTART_STRATEGY, "exponential-delay" if checkpointing else "none")


def restart_strategy_from(configuration: Configuration, *, checkpointing: bool) -> RestartStrategy:
    """Return the strategy the settings name."""
    settled = settle_restart(configuration, checkpointing=checkpointing)
    return options_from(_STRATEGIES[settled.get(config.RESTART_STRATEGY) or "none"], settled)


class _FixedDelay:
    def __init__(self, strategy: FixedDelayRestart) -> None:
        self._strategy = strategy
        self._failures = 0

    def on_failure(self) -> Restart | None:
        self._failures += 1
        if self._failures > self._strategy.attempts:
            return None
        return Restart(self._strategy.delay, self._failures, self._strategy.attempts)


class _ExponentialDelay:
    def __init__(self, strategy: ExponentialDelayRestart, clock: Clock, rng: random.Random) -> None:
        self._strategy = strategy
        self._clock = clock
        self._rng = rng
        self._attempts = 0
        self._backoff = strategy.initial_backoff
        self._restarted = clock.monotonic()

    def on_failure(self) -> Restart | None:
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
        return Restart(wait, self._attempts, attempts)


class _FailureRate:
    def __init__(self, strategy: FailureRateRestart, clock: Clock) -> None:
        self._strategy = strategy
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=strategy.max_failures + 1)

    def on_failure(self) -> Restart | None:
        now, interval = self._clock.monotonic(), self._strategy.interval.total_seconds()
        self._failures.append(now)
        recent = sum(now - failed_at <= interval for failed_at in self._failures)
        if recent > self._strategy.max_failures:
            return None
        return Restart(self._strategy.delay, recent, self._strategy.max_failures)


def _check(strategy: object, name: str, holds: Callable[[], bool], allowed: str) -> None:
    try:
        is_allowed = holds()
    except TypeError:  # of another type, which is not comparable
        is_allowed = False
    if not is_allowed:
        raise ConfigError(
            f"{type(strategy).__name__}: {name} is {getattr(strategy, name)!r}", hint=f"It must be {allowed}."
        )
