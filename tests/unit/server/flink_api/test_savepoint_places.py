"""Where a client of REST may have savepoints written."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkdam.server.app.http_errors import RestError
from checkdam.server.flink_api.savepoint_places import SavepointPlaces


def _status(places: SavepointPlaces, given: str) -> int:
    with pytest.raises(RestError) as refused:
        places.resolve(given)
    return refused.value.status


@pytest.mark.parametrize(
    ("directory", "given", "place"),
    [
        ("/sp", "today", "/sp/today"),
        ("/sp", "a/../b", "/sp/b"),
        ("/sp", ".", "/sp"),
        ("/sp", "file:today", "/sp/today"),
        ("/sp", "s3:today", "/sp/s3:today"),
        ("file:///my%20sp", "today", "/my sp/today"),
        ("s3://bucket/sp", "today", "s3://bucket/sp/today"),
        ("s3://bucket/sp?region=eu", "a/./b", "s3://bucket/sp/a/b?region=eu"),
        ("s3://bucket/sp", ".", "s3://bucket/sp"),
    ],
)
def test_a_relative_directory_is_below_the_configured_one(directory: str, given: str, place: str) -> None:
    assert SavepointPlaces(directory).resolve(given) == place


@pytest.mark.parametrize("anywhere", [True, False])
@pytest.mark.parametrize(
    ("directory", "given"),
    [
        ("/sp", ".."),
        ("/sp", "../sp2"),
        ("/sp", "a/../../etc"),
        ("/sp", "file:../etc"),
        ("/sp", "file:%2e%2e/etc"),
        ("s3://bucket/sp", "../other"),
        ("s3://bucket/sp", "%2e%2e/other"),
        ("s3://bucket/sp", "a?endpoint_override=evil"),
        ("s3://bucket/sp", "a\\..\\..\\b"),
    ],
)
def test_a_relative_directory_never_leaves_the_configured_one(directory: str, given: str, anywhere: bool) -> None:
    assert _status(SavepointPlaces(directory, anywhere=anywhere), given) == 403


@pytest.mark.parametrize("given", ["/sp", "/sp/", "/sp/a", "file:/sp/a", "file:///sp/a", "/sp/a/../b", "/FILE/../sp"])
def test_an_absolute_directory_may_be_the_configured_one_or_below(given: str) -> None:
    assert SavepointPlaces("/sp").resolve(given) == given


@pytest.mark.parametrize(
    "given", ["/", "/sp2", "/sp/../etc", "file:/etc", "file:///sp/%2e%2e/etc", "s3://sp/a", "~", "nothing://sp"]
)
def test_another_absolute_directory_is_refused_unless_any_is_allowed(given: str) -> None:
    assert _status(SavepointPlaces("/sp"), given) == 403
    assert SavepointPlaces("/sp", anywhere=True).resolve(given) == given


@pytest.mark.parametrize(
    ("given", "is_allowed"),
    [
        ("s3://bucket/sp", True),
        ("s3://bucket/sp/a", True),
        ("s3://bucket/sp2", False),
        ("s3://bucket/sp/../x", False),
        ("s3://bucket/sp/%2e%2e/x", False),
        ("s3://other/sp", False),
        ("s3://key:secret@bucket/sp", False),
        ("s3://bucket/sp?endpoint_override=evil", False),
        ("gs://bucket/sp", False),
        ("/bucket/sp", False),
    ],
)
def test_a_uri_may_be_below_an_allowed_one_of_the_same_storage(given: str, is_allowed: bool) -> None:
    places = SavepointPlaces(None, ["/elsewhere", "s3://bucket/sp"])

    if is_allowed:
        assert places.resolve(given) == given
    else:
        assert _status(places, given) == 403


def test_a_symbolic_link_leads_to_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "sp").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "sp" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "alias").symlink_to(tmp_path / "sp")
    places = SavepointPlaces(str(tmp_path / "sp"))

    assert _status(places, "out") == 403
    assert _status(places, "out/../../x") == 403
    assert _status(places, str(tmp_path / "sp" / "out" / "x")) == 403
    assert places.resolve(str(tmp_path / "alias" / "a")) == str(tmp_path / "alias" / "a")
    assert SavepointPlaces(str(tmp_path / "alias")).resolve("a") == str(tmp_path / "alias" / "a")


@pytest.mark.parametrize("given", ["a\0b", "/a\0b", "/\ud800"])
def test_what_is_no_path_is_refused(given: str) -> None:
    assert _status(SavepointPlaces("/sp"), given) == 400


def test_a_relative_directory_needs_a_configured_one() -> None:
    assert _status(SavepointPlaces(None, anywhere=True), "today") == 400


def test_credentials_are_not_repeated() -> None:
    with pytest.raises(RestError) as refused:
        SavepointPlaces("s3://key:secret@bucket/sp").resolve("s3://me:mine@other/sp")

    assert "secret" not in str(refused.value)
    assert "mine" not in str(refused.value)
