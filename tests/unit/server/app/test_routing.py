"""Which endpoint answers a request, and what it sees of the path."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx
import pytest

from checkdam.config import Configuration
from checkdam.errors import StateAccessError
from checkdam.server.all_endpoints import endpoints
from checkdam.server.app.application import application
from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.app.security import Guard
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.operations import Operations

ONE = "1" * 32


def _endpoint(path: str, method: str = "GET", *, writes: bool | None = None) -> Endpoint:
    def handler(call: ApiCall) -> Any:
        return [path, call.path]

    return Endpoint(method, path, handler, path, writes=writes)


APP = application(
    [
        _endpoint("/jobs/{jobid}/checkpoints/{name}"),
        _endpoint("/jobs/{jobid}/checkpoints/config"),
        _endpoint("/jobs/{jobid}/checkpoints/details/{checkpointid}"),
        _endpoint("/jobs/overview"),
        _endpoint("/jobs/{jobid}"),
        _endpoint("/jobs/{jobid}", "PATCH"),
        _endpoint("/jobs/{jobid}/yarn-cancel", writes=True),
        _endpoint("/state/{uid}/{name}"),
        _endpoint("/"),
        _endpoint("/ui/{file:path}"),
    ],
    Guard(),
)


def _asked(app: Any, path: str, method: str = "GET") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.request(method, path)

    return asyncio.run(ask())


def _found(path: str, method: str = "GET") -> tuple[str, dict[str, Any]] | None:
    answer = _asked(APP, path, method)
    assert answer.status_code in (200, 404)
    return tuple(answer.json()) if answer.status_code == 200 else None


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_path_is_served_with_and_without_the_version(prefix: str) -> None:
    assert _found(prefix + "/jobs/overview") == ("/jobs/overview", {})


def test_a_literal_goes_before_a_parameter_that_was_declared_first() -> None:
    assert _found(f"/jobs/{ONE}/checkpoints/config") == ("/jobs/{jobid}/checkpoints/config", {"jobid": ONE})
    assert _found(f"/jobs/{ONE}/checkpoints/details") == (
        "/jobs/{jobid}/checkpoints/{name}",
        {"jobid": ONE, "name": "details"},
    )


def test_a_quoted_slash_stays_within_its_segment() -> None:
    assert _found("/state/a%2Fb/c%20d") == ("/state/{uid}/{name}", {"uid": "a/b", "name": "c d"})


def test_the_rest_of_a_path_may_be_one_parameter() -> None:
    assert _found("/ui/js/app.js") == ("/ui/{file:path}", {"file": "js/app.js"})


@pytest.mark.parametrize("path", ["/jobs", "/v2/jobs/overview", "/jobs//checkpoints/config", "/v1/v1/jobs/overview"])
def test_other_paths_are_not_found(path: str) -> None:
    assert _found(path) is None


def test_the_root_is_served() -> None:
    assert _found("/") == ("/", {})


def test_a_slash_at_the_end_changes_nothing() -> None:
    assert _found("/jobs/overview/") == ("/jobs/overview", {})


def test_head_finds_what_get_would_unless_that_changes_something() -> None:
    assert _asked(APP, "/jobs/overview", "HEAD").status_code == 200
    assert _asked(APP, f"/jobs/{ONE}/yarn-cancel", "HEAD").status_code == 404
    assert _asked(APP, f"/jobs/{ONE}/yarn-cancel").status_code == 200


def test_a_method_that_a_path_does_not_have_is_not_found() -> None:
    answer = _asked(APP, "/jobs/overview", "DELETE")

    assert (answer.status_code, answer.json()) == (404, {"errors": ["Not found: /jobs/overview"]})


def test_our_own_errors_are_told_with_their_hint() -> None:
    def fail(_: ApiCall) -> None:
        raise StateAccessError("no such state", hint="Look at /state.")

    answer = _asked(application([Endpoint("GET", "/fails", fail, "Fails")], Guard()), "/fails")

    assert (answer.status_code, answer.json()) == (404, {"errors": ["no such state. Look at /state."]})


def test_no_two_endpoints_have_the_same_method_and_path() -> None:
    served = endpoints(Jobs(), Operations(timedelta(1)), Configuration(), dispose=lambda _: None)

    counted = Counter((endpoint.method, re.sub(r"{\w+}", "{}", endpoint.path)) for endpoint in served)

    assert [each for each, count in counted.items() if count > 1] == []
