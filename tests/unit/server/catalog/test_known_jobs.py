from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import msgspec
import pytest
from starlette.responses import Response
from tests.unit.server.made_jobs import JOB, RECORD, AskedControl, running_job

from checkdam.ids import JobId
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.endpoint import ApiCall
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog import known_jobs
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import prometheus
from checkdam.server.flink_api.cluster import live_slots


def test_of_a_job_that_ended_only_what_it_tells_is_kept() -> None:
    gc.freeze()  # a collection then looks only at what this test makes
    jobs = Jobs()
    control = AskedControl()
    held = weakref.ref(control)
    jobs.started(running_job(RECORD, control))
    del control

    jobs.ended(JobId(JOB))
    gc.collect()

    assert held() is None
    assert jobs.running(JOB) is None
    assert jobs.record(JOB) == RECORD


def test_of_many_jobs_that_ended_the_last_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_jobs, "MOST_ENDED", 2)
    jobs = Jobs()
    ids = [digit * 32 for digit in "abc"]

    for job_id in ids:
        jobs.started(running_job(msgspec.structs.replace(RECORD, id=job_id)))
        jobs.ended(JobId(job_id))

    assert {record.id for record in jobs.records()} == set(ids[1:])
    with pytest.raises(RestError):
        jobs.record(ids[0])


def test_a_job_that_starts_again_runs() -> None:
    jobs = Jobs()
    for _ in range(2):
        jobs.ended(JobId(JOB))
        jobs.started(running_job())

    assert jobs.running(JOB) is not None
    assert [record.id for record in jobs.records()] == [JOB]


class Asked:
    """An archive that must not be asked."""

    def records(self) -> Sequence[JobRecord]:
        raise AssertionError("asked for all jobs")

    def record(self, job_id: str) -> JobRecord | None:
        raise AssertionError(f"asked for {job_id}")


def _scraped(jobs: Jobs) -> bytes:
    [endpoint] = prometheus.routes(jobs)
    answer = endpoint.handler(ApiCall({}, {}))
    assert isinstance(answer, Response)
    return bytes(answer.body)


def test_no_storage_is_asked_for_jobs_that_run_here() -> None:
    jobs = Jobs(Asked())
    jobs.started(running_job())

    assert jobs.running_records() == [RECORD]
    assert [slot for _, slot in live_slots(jobs)] == list(RECORD.slots)
    assert b"flink_jobmanager" in _scraped(jobs)
