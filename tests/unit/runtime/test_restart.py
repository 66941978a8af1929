from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from checkdam.config import Configuration
from checkdam.errors import ConfigError
from checkdam.runtime.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartPolicy,
    restart_strategy_from,
)
from checkdam.testing.manual_clock import ManualClock

SECOND = timedelta(seconds=1)


def delay(policy: RestartPolicy) -> timedelta | None:
    restart = policy.on_failure()
    return None if restart is None else restart.delay


def test_a_restart_says_which_of_how_many_it_is_as_its_strategy_counts() -> None:
    clock = ManualClock()
    fixed = FixedDelayRestart(attempts=2, delay=SECOND).begin(clock)
    growing = ExponentialDelayRestart(SECOND, SECOND, 1.0, 60 * SECOND, 0.0, attempts_before_reset_backoff=3).begin(
        clock
    )
    endless = ExponentialDelayRestart(SECOND, SECOND, 1.0, 60 * SECOND, 0.0).begin(clock)
    rate = FailureRateRestart(max_failures=2, interval=60 * SECOND, delay=SECOND).begin(clock)
    policies = [fixed, growing, endless, rate]

    first = [policy.on_failure() for policy in policies]
    second = [policy.on_failure() for policy in policies]
    clock.advance(100)
    after_calm = [policy.on_failure() for policy in policies[1:]]

    assert [each and each.which for each in first] == [
        "attempt 1 of 2",
        "attempt 1 of 3",
        "attempt 1",
        "attempt 1 of 2",
    ]
    assert [each and each.which for each in second] == [
        "attempt 2 of 2",
        "attempt 2 of 3",
        "attempt 2",
        "attempt 2 of 2",
    ]
    assert [each and each.which for each in after_calm] == ["attempt 1 of 3", "attempt 1", "attempt 1 of 2"]


def test_no_restart_gives_up_at_once() -> None:
    assert delay(NoRestart().begin(ManualClock())) is None


def test_fixed_delay_restarts_as_often_as_it_says() -> None:
    policy = FixedDelayRestart(attempts=3, delay=10 * SECOND).begin(ManualClock())

    assert [delay(policy) for _ in range(5)] == [10 * SECOND] * 3 + [None] * 2


def test_each_begin_counts_afresh() -> None:
    strategy = FixedDelayRestart(attempts=1, delay=SECOND)
    delay(strategy.begin(ManualClock()))

    assert delay(strategy.begin(ManualClock())) == SECOND


def test_exponential_delay_grows_up_to_its_maximum() -> None:
    strategy = ExponentialDelayRestart(SECOND, 10 * SECOND, 2.0, jitter_factor=0.0)
    policy = strategy.begin(ManualClock())

    assert [delay(policy) for _ in range(6)] == [s * SECOND for s in (1, 2, 4, 8, 10, 10)]


def test_exponential_delay_starts_over_after_calm_since_the_restart() -> None:
    clock = ManualClock()
    policy = ExponentialDelayRestart(SECOND, 8 * SECOND, 2.0, 60 * SECOND, jitter_factor=0.0).begin(clock)
    delay(policy)

    clock.advance(1 + 59.9)
    without_calm = delay(policy)
    clock.advance(2 + 60)
    after_calm = delay(policy)

    assert (without_calm, after_calm) == (2 * SECOND, SECOND)


def test_exponential_delay_gives_up_after_its_attempts_and_calm_renews_them() -> None:
    clock = ManualClock()
    strategy = ExponentialDelayRestart(SECOND, SECOND, 1.0, 60 * SECOND, 0.0, attempts_before_reset_backoff=2)
    policy = strategy.begin(clock)

    early = [delay(policy) for _ in range(3)]
    clock.advance(61)

    assert early == [SECOND, SECOND, None]
    assert delay(policy) == SECOND


def test_exponential_jitter_stays_within_its_share_and_bounds() -> None:
    strategy = ExponentialDelayRestart(SECOND, 100 * SECOND, 10.0, jitter_factor=0.5)
    waits = []
    for seed in range(200):
        policy = strategy.begin(ManualClock(), random.Random(seed))
        waits.append([delay(policy) or timedelta(0) for _ in range(3)])

    first, second, third = zip(*waits, strict=True)

    assert min(first) == SECOND
    assert max(first) <= 1.5 * SECOND
    assert 5 * SECOND <= min(second) < 7 * SECOND
    assert 13 * SECOND < max(second) <= 15 * SECOND
    assert max(third) == 100 * SECOND


def test_exponential_delay_survives_very_many_failures() -> None:
    policy = ExponentialDelayRestart(backoff_multiplier=1e6, jitter_factor=0.0).begin(ManualClock())

    assert [delay(policy) for _ in range(5000)][-1] == timedelta(minutes=1)


def test_failure_rate_bears_its_number_within_the_interval_and_no_more() -> None:
    clock = ManualClock()
    policy = FailureRateRestart(max_failures=2, interval=60 * SECOND, delay=SECOND).begin(clock)

    waits = []
    for pause in (0, 10, 51, 10, 1):  # at 0, 10, 61, 71, 72: the last is the third within 60 s
        clock.advance(pause)
        waits.append(delay(policy))

    assert waits == [SECOND, SECOND, SECOND, SECOND, None]


@pytest.mark.parametrize(
    ("checkpointing", "expected"),
    [(False, NoRestart()), (True, ExponentialDelayRestart(SECOND, 60 * SECOND, 1.5, timedelta(hours=1), 0.1, None))],
)
def test_unset_it_depends_on_checkpoints_as_in_flink(checkpointing: bool, expected: object) -> None:
    assert restart_strategy_from(Configuration(), checkpointing=checkpointing) == expected


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"restart-strategy": "off"}, NoRestart()),
        (
            {
                "restart-strategy": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "10 s",
            },
            FixedDelayRestart(3, 10 * SECOND),
        ),
        (
            {
                "restart-strategy.type": "exponential-delay",
                "restart-strategy.exponential-delay.initial-backoff": "2s",
                "restart-strategy.exponential-delay.max-backoff": "3s",
                "restart-strategy.exponential-delay.backoff-multiplier": "4",
                "restart-strategy.exponential-delay.reset-backoff-threshold": "5s",
                "restart-strategy.exponential-delay.jitter-factor": "0.6",
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": "7",
            },
            ExponentialDelayRestart(2 * SECOND, 3 * SECOND, 4.0, 5 * SECOND, 0.6, 7),
        ),
        (
            {
                "restart-strategy.type": "failure-rate",
                "restart-strategy.failure-rate.max-failures-per-interval": "2",
                "restart-strategy.failure-rate.failure-rate-interval": "3s",
                "restart-strategy.failure-rate.delay": "4s",
            },
            FailureRateRestart(2, 3 * SECOND, 4 * SECOND),
        ),
    ],
)
def test_what_the_settings_ask_for_is_what_the_job_gets(
    settings: dict[str, str], expected: object, checkpointing: bool
) -> None:
    assert restart_strategy_from(Configuration.load(None, settings), checkpointing=checkpointing) == expected


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: FixedDelayRestart(attempts=-1), "attempts"),
        (lambda: FixedDelayRestart(delay=-SECOND), "delay"),
        (lambda: FixedDelayRestart(attempts="3"), "attempts"),  # type: ignore[arg-type]  # on purpose
        (lambda: FixedDelayRestart(delay=10), "delay"),  # type: ignore[arg-type]  # on purpose
        (lambda: ExponentialDelayRestart(initial_backoff=timedelta(0)), "initial_backoff"),
        (lambda: ExponentialDelayRestart(initial_backoff=SECOND, max_backoff=SECOND / 2), "max_backoff"),
        (lambda: ExponentialDelayRestart(backoff_multiplier=0.5), "backoff_multiplier"),
        (lambda: ExponentialDelayRestart(reset_backoff_threshold=timedelta(0)), "reset_backoff_threshold"),
        (lambda: ExponentialDelayRestart(jitter_factor=1.5), "jitter_factor"),
        (lambda: ExponentialDelayRestart(attempts_before_reset_backoff=0), "attempts_before_reset_backoff"),
        (lambda: FailureRateRestart(max_failures=0), "max_failures"),
        (lambda: FailureRateRestart(interval=timedelta(0)), "interval"),
        (lambda: FailureRateRestart(delay=-SECOND), "delay"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused_by_name(build: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigError, match=f": {field} is"):
        build()
