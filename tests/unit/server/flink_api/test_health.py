"""The health of a job at a glance, and as the overview of all jobs and one job's details show it."""

from __future__ import annotations

import pytest
from tests.unit.server.made_jobs import RECORD, START, with_status
from tests.unit.server.serving import Served

from checkdam.graph.watermarks import MAX_WATERMARK, MIN_WATERMARK
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import CheckpointTrouble, RestartRecord
from checkdam.server.flink_api.health import RECENT_RESTART, CheckpointHealth, RestartHealth, health, watermark_lag

RESTART = RestartRecord(2, 5, "slot 0 is gone", START, START + 3000)
TROUBLE = CheckpointTrouble(3, START - 500, "disk full")


def test_a_job_without_trouble_is_ok_and_tells_its_largest_watermark_lag() -> None:
    found = health(RECORD, START + 1000)

    assert (found.level, found.restart, found.checkpoints, found.watermark_lag) == ("ok", None, None, 1001)


def test_a_job_that_waits_for_its_restart_tells_why_which_attempt_and_when() -> None:
    found = health(with_status(JobStatus.RESTARTING, restart=RESTART), START + 1000)

    assert (found.level, found.watermark_lag) == ("failing", None)
    assert found.restart == RestartHealth(2, 5, "slot 0 is gone", START, START + 3000)


@pytest.mark.parametrize(("age", "level"), [(RECENT_RESTART - 1, "warning"), (RECENT_RESTART, "ok")])
def test_a_restart_is_told_of_for_ever_and_calls_for_attention_while_it_is_recent(age: int, level: str) -> None:
    found = health(with_status(JobStatus.RUNNING, restart=RESTART), START + age)

    assert (found.level, found.restart is not None) == (level, True)


def test_a_rescaling_is_no_trouble() -> None:
    assert health(with_status(JobStatus.RESTARTING), START).level == "ok"


def test_failing_checkpoints_call_for_attention() -> None:
    found = health(with_status(JobStatus.RUNNING, checkpoint_trouble=TROUBLE), START)

    assert found.level == "warning"
    assert found.checkpoints == CheckpointHealth(3, RECORD.settings.tolerable_failures, START - 500, "disk full")


def test_an_ended_job_has_no_health() -> None:
    ended = with_status(JobStatus.FAILED, restart=RESTART, checkpoint_trouble=TROUBLE)

    found = health(ended, START)

    assert (found.level, found.restart, found.checkpoints, found.watermark_lag) == ("ended", None, None, None)


@pytest.mark.parametrize("watermark", [MIN_WATERMARK, MAX_WATERMARK, 0, 12345])
def test_event_time_that_is_not_the_clocks_has_no_lag(watermark: int) -> None:
    assert watermark_lag(watermark, START) is None


def test_each_operator_has_a_lag_of_its_own_while_the_job_runs(served: Served) -> None:
    details = served.of_job()

    assert [vertex["watermark-lag"] for vertex in details["vertices"]] == [None, details["now"] - START + 1]


def test_the_overview_and_the_details_tell_the_same(served: Served) -> None:
    served.tells(with_status(JobStatus.RESTARTING, restart=RESTART, checkpoint_trouble=TROUBLE))

    details = served.of_job()
    (listed,) = served.get("/jobs/overview")["jobs"]

    assert details["health"] == listed["health"]
    assert details["health"]["restart"]["next-at"] == START + 3000
