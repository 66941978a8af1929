"""Which servers of this user another one of them may speak for."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkdam.ids import JobId
from checkdam.server.catalog import registry
from checkdam.server.catalog.driver_answers import DriverAnswers
from checkdam.server.catalog.neighbours import Neighbours
from checkdam.testing.manual_clock import ManualClock

JOB = JobId("4fa1" + "0" * 28)
URL = "http://localhost:1"


@pytest.mark.parametrize(
    ("shows_all", "own", "of_the_job", "is_shown"),
    [
        (False, None, None, True),
        (False, None, "a", False),
        (False, "a", "a", True),
        (False, "a", "b", False),
        (False, "a", None, False),
        (True, None, None, True),
        (True, None, "a", False),
        (True, "a", "a", True),
        (True, "a", "b", True),
        (True, "a", None, True),
    ],
)
def test_only_a_standing_server_with_a_token_speaks_for_jobs_with_another(
    tmp_path: Path, shows_all: bool, own: str | None, of_the_job: str | None, is_shown: bool
) -> None:
    directory = tmp_path / "me" / "servers"
    registry.register("http://localhost:1", of_the_job, directory).runs(JOB)

    neighbours = Neighbours(directory, token=own, shows_all=shows_all)

    assert (neighbours.server_of(JOB) is not None) == is_shown
    assert [server.url for server in neighbours.servers()] == (["http://localhost:1"] if is_shown else [])
    assert [server.url for server in neighbours.guarded()] == ([] if is_shown else ["http://localhost:1"])


def test_the_last_answer_of_a_driver_that_has_just_ended_is_used_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {URL: f'{{"jobs":[{{"jid":"{JOB}","state":"RUNNING"}}]}}'.encode()}
    monkeypatch.setattr(DriverAnswers, "ask", lambda self, places, target: answers)
    directory, clock, gone = tmp_path / "me" / "servers", ManualClock(), list[str]()
    registration = registry.register(URL, None, directory)
    registration.runs(JOB)
    neighbours = Neighbours(directory, clock=clock, on_gone=lambda: gone.append("gone"))
    neighbours.servers()
    clock.advance(0.5)
    assert set(neighbours.overviews()) == {JOB}
    clock.advance(0.7)
    neighbours.servers()  # the registry is not read again for a second
    answers.clear()
    clock.advance(0.4)
    assert set(neighbours.overviews()) == {JOB}  # its process lives
    clock.advance(0.9)
    neighbours.servers()
    clock.advance(0.2)

    registration.close()

    assert neighbours.overviews() == {}
    assert gone == ["gone"]
