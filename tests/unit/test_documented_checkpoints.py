"""docs/checkpoints.md says what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from checkdam import config
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention, JobEnd, keeps_checkpoints
from checkdam.runtime.restart import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart

PAGE = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]


def test_its_programs_build() -> None:
    names: dict[str, Any] = {}

    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/checkpoints.md", "exec"), names)

    settings = names["env"].configuration
    assert settings.get(config.CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION"
    assert settings.get(config.FAIL_ON_REPEATED_REJECTION) is True


def test_every_option_is_there_with_its_key() -> None:
    pairs = [re.fullmatch(r"`([a-z_]+)` `([a-z.-]+)`", " ".join(row[:2])) for row in ROWS]
    told = {pair[1]: pair[2] for pair in pairs if pair is not None}

    known = {option.key for option in config.OPTIONS}
    assert list(told) == [field.name for field in dataclasses.fields(CheckpointConfig)]
    assert {f"execution.checkpointing.{key}" for key in told.values()} <= known


@pytest.mark.parametrize("retention", CheckpointRetention)
def test_the_table_of_retention_is_the_one_that_holds(retention: CheckpointRetention) -> None:
    [row] = [row for row in ROWS if row[0] == f"`{retention.name}`"]

    ends = [JobEnd.FINISHED, JobEnd.CANCELLED, JobEnd.FAILED, JobEnd.SUSPENDED]
    assert row[1:] == ["kept" if keeps_checkpoints(retention, end) else "deleted" for end in ends]


@pytest.mark.parametrize("strategy", [ExponentialDelayRestart, FixedDelayRestart, FailureRateRestart])
def test_every_parameter_of_a_strategy_is_there(strategy: Any) -> None:
    [row] = [row for row in ROWS if row[0] == f"`{strategy.__name__}()`"]

    assert re.findall(r"`(\w+)`", row[3]) == [field.name for field in dataclasses.fields(strategy)]
