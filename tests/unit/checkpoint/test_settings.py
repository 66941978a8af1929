from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from checkdam.checkpoint.settings import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointRetention,
    JobEnd,
    keeps_checkpoints,
)
from checkdam.config import Configuration
from checkdam.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interval", timedelta(seconds=-1)),
        ("interval", 60),
        ("min_pause", timedelta(microseconds=-1)),
        ("timeout", timedelta(0)),
        ("timeout", timedelta(seconds=-1)),
        ("tolerable_failures", -1),
        ("max_concurrent", 0),
        ("max_concurrent", True),
        ("num_retained", 0),
        ("num_retained", 1.5),
        ("mode", "exactly_once"),
        ("retention", None),
        ("storage", " "),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}

    with pytest.raises(ConfigError, match=f"CheckpointConfig: {field} is") as raised:
        CheckpointConfig(**fields)

    assert raised.value.hint


def test_a_pause_implies_one_checkpoint_at_a_time() -> None:
    assert CheckpointConfig(min_pause=timedelta(seconds=1), max_concurrent=3).max_concurrent == 1
    assert CheckpointConfig(max_concurrent=3).max_concurrent == 3


def test_the_settings_give_the_same_defaults_as_the_class() -> None:
    assert CheckpointConfig.from_configuration(Configuration()) == CheckpointConfig()


def test_every_option_can_be_set_by_its_key() -> None:
    settings = {
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.mode": "at-least-once",
        "execution.checkpointing.timeout": "1 min",
        "execution.checkpointing.max-concurrent-checkpoints": "2",
        "execution.checkpointing.tolerable-failed-checkpoints": "4",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.checkpoints.num-retained": "3",
        "state.checkpoints.dir": "file:///data",
    }

    assert CheckpointConfig.from_configuration(Configuration.load(None, settings)) == CheckpointConfig(
        interval=timedelta(seconds=1),
        mode=CheckpointingMode.AT_LEAST_ONCE,
        timeout=timedelta(minutes=1),
        max_concurrent=2,
        tolerable_failures=4,
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        num_retained=3,
        storage="file:///data",
    )
    pause = Configuration.load(None, {"execution.checkpointing.min-pause": "7s"})
    assert CheckpointConfig.from_configuration(pause).min_pause == timedelta(seconds=7)


@pytest.mark.parametrize("retention", CheckpointRetention)
def test_every_retention_can_be_set_by_its_name(retention: CheckpointRetention) -> None:
    key = "execution.checkpointing.externalized-checkpoint-retention"

    assert CheckpointConfig.from_configuration(Configuration.load(None, {key: retention.name})).retention is retention
    assert CheckpointConfig.from_configuration(Configuration().with_value(key, retention)).retention is retention


def test_flinks_other_name_means_the_same() -> None:
    key = "execution.checkpointing.externalized-checkpoint-retention"
    settings = Configuration.load(None, {key: "RETAIN_ON_FAILURE"})

    assert CheckpointConfig.from_configuration(settings).retention is CheckpointRetention.DELETE_ON_CANCELLATION


@pytest.mark.parametrize(
    ("retention", "kept_after"),
    [
        (CheckpointRetention.RETAIN_ON_CANCELLATION, set(JobEnd)),
        (CheckpointRetention.DELETE_ON_CANCELLATION, {JobEnd.FAILED, JobEnd.SUSPENDED}),
        (CheckpointRetention.RETAIN_ON_FAILURE, {JobEnd.FAILED, JobEnd.SUSPENDED}),
        (CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS, {JobEnd.SUSPENDED}),
    ],
)
def test_checkpoints_stay_after_just_the_ends_their_retention_names(
    retention: CheckpointRetention, kept_after: set[JobEnd]
) -> None:
    assert {end for end in JobEnd if keeps_checkpoints(retention, end)} == kept_after
