"""What the server publishes about itself is true, whatever is sent to it; and the job does not hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.server.real_job import ServedJob, served_job
from tests.unit.server.made_jobs import COUNT, JOB
from tests.unit.server.serving import Served, serving

from checkdam.config import Configuration
from checkdam.server.all_endpoints import endpoints
from checkdam.server.app.openapi import document
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.operations import Operations
from checkdam.testing.local_job import JOB_ID

pytestmark = pytest.mark.slow

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
BOUNDED = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
SCHEMA: Any = schemathesis.openapi.from_dict(
    document(endpoints(Jobs(), Operations(timedelta(1)), Configuration(), dispose=lambda _: None))
)
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
ENDS_THE_JOB = ("/stop", "/yarn-cancel", "/yarn-stop", "/rescaling", "/resource-requirements")
HARMLESS = sorted(label for label in OPERATIONS if not label.endswith(ENDS_THE_JOB) and label != "PATCH /jobs/{jobid}")


@pytest.fixture(scope="module")
def made() -> Iterator[Served]:
    yield from serving(Configuration())


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedJob]:
    with served_job(tmp_path_factory.mktemp("fuzz")) as job:
        yield job


def _fuzz(label: str, url: str, aim: Callable[[Any], None]) -> None:
    """Send what fits the description and what does not; `aim` may change it first."""

    def send(case: Any) -> None:
        aim(case)
        answer = case.call(base_url=url, timeout=30)
        case.validate_response(answer, checks=CHECKS)

    for mode in MODES:
        try:
            BOUNDED(given(case=OPERATIONS[label].as_strategy(generation_mode=mode))(send))()
        except Unsatisfiable:  # where there is nothing to get wrong: no parameters, or free text alone
            assert mode is GenerationMode.NEGATIVE


def _at(**known: Any) -> Callable[[Any], None]:
    """At things that are there; what is generated for the rest of the request stays."""

    def aim(case: Any) -> None:
        for name in case.path_parameters.keys() & known.keys():
            case.path_parameters[name] = known[name]

    return aim


@pytest.mark.parametrize("label", OPERATIONS)
def test_whatever_is_sent_is_answered_as_published(made: Served, label: str) -> None:
    at_the_job = _at(jobid=JOB, vertexid=COUNT, checkpointid=2, subtaskindex=1)
    turns: Iterator[Callable[[Any], None]] = cycle([at_the_job, lambda _: None])

    _fuzz(label, made.server.url, lambda case: next(turns)(case))


@pytest.mark.parametrize("label", [label for label in HARMLESS if "{jobid}" in label])
def test_whatever_is_sent_to_a_real_job_leaves_it_running(real: ServedJob, label: str, tmp_path: Path) -> None:
    at_the_job = _at(jobid=JOB_ID, uid="count")

    def aim(case: Any) -> None:
        at_the_job(case)
        if isinstance(case.body, dict):
            case.body.pop("cancel-job", None)
            if case.body.get("target-directory") is not None:  # what is generated may be a place on this machine
                case.body["target-directory"] = str(tmp_path)

    _fuzz(label, real.server.url, aim)

    assert real.status == "RUNNING"
    assert real.job.heard.restarts == []
