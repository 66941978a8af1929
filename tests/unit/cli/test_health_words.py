from __future__ import annotations

from typing import Any

import msgspec
import pytest

from checkdam.cli.health_words import health_words
from checkdam.server.flink_api.health import CheckpointHealth, Health, RestartHealth

START = 1_700_000_000_000
NOW = START + 60_000
FAILED = RestartHealth(2, 5, "slot 0 is gone", NOW - 1000, NOW + 3000)


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health(), "ok"),
        (Health(watermark_lag=999), "ok"),
        (Health(watermark_lag=12_300), "ok, 12 s behind"),
        (Health("failing", FAILED), "attempt 2 of 5 in 3.0 s"),
        (Health("failing", msgspec.structs.replace(FAILED, most=None, next_at=NOW)), "attempt 2 now"),
        (Health("warning", FAILED), "restarted 1.0 s ago"),
        (Health("warning", None, CheckpointHealth(1, 0, NOW, "disk full")), "1 checkpoint failed"),
        (Health("warning", FAILED, CheckpointHealth(3, 0, NOW, "x")), "restarted 1.0 s ago, 3 checkpoints failed"),
        (Health("ok", FAILED), "ok"),
        (Health("ended"), "-"),
    ],
)
def test_health_is_told_in_a_few_words(health: Health, words: str) -> None:
    overview: dict[str, Any] = {"start-time": START, "duration": 60_000, "health": msgspec.to_builtins(health)}

    assert health_words(overview) == words


def test_a_server_that_tells_no_health_is_no_error() -> None:
    assert health_words({"start-time": START, "duration": 1}) == "-"
