from __future__ import annotations

import pytest

from checkdam.server.app.endpoint import Call, Endpoint
from checkdam.server.app.routing import Router


def _endpoint(path: str, method: str = "GET", *, writes: bool | None = None) -> Endpoint:
    def handler(_: Call) -> str:
        return path

    return Endpoint(method, path, handler, path, writes=writes)


ROUTER = Router(
    [
        _endpoint("/jobs/{jobid}/checkpoints/{triggerid}"),
        _endpoint("/jobs/{jobid}/checkpoints/config"),
        _endpoint("/jobs/{jobid}/checkpoints/details/{checkpointid}"),
        _endpoint("/jobs/overview"),
        _endpoint("/jobs/{jobid}"),
        _endpoint("/jobs/{jobid}", "PATCH"),
        _endpoint("/jobs/{jobid}/yarn-cancel", writes=True),
        _endpoint("/state/{uid}/{name}"),
        _endpoint("/"),
        _endpoint("/ui/{file:path}"),
    ]
)


def _found(path: str, method: str = "GET") -> tuple[str, dict[str, str]] | None:
    found = ROUTER.find(method, path)
    return (found[0].path, found[1]) if found else None


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_path_is_served_with_and_without_the_version(prefix: str) -> None:
    assert _found(prefix + "/jobs/overview") == ("/jobs/overview", {})


def test_a_literal_goes_before_a_parameter_that_was_declared_first() -> None:
    assert _found("/jobs/1/checkpoints/config") == ("/jobs/{jobid}/checkpoints/config", {"jobid": "1"})
    assert _found("/jobs/1/checkpoints/details") == (
        "/jobs/{jobid}/checkpoints/{triggerid}",
        {"jobid": "1", "triggerid": "details"},
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


def test_head_finds_what_get_would_unless_that_changes_something() -> None:
    assert _found("/jobs/overview", "HEAD") == ("/jobs/overview", {})
    assert _found("/jobs/1/yarn-cancel", "HEAD") is None


def test_a_method_that_a_path_does_not_have_is_not_found() -> None:
    assert _found("/jobs/overview", "DELETE") is None


def test_two_endpoints_for_one_path_are_refused() -> None:
    with pytest.raises(ValueError, match="two endpoints"):
        Router([_endpoint("/a/{x}"), _endpoint("/a/{y}")])
