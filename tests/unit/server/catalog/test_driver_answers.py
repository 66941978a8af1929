"""Drivers in other processes are asked all at once, briefly, and their answers are not trusted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import msgspec
import pytest
from tests.unit.server.made_jobs import JOB, OTHER
from tests.unit.server.serving import Served

from checkdam.client import bounded_request
from checkdam.client.bounded_request import Limits, is_plain
from checkdam.errors import RequestRefusedError, ServerUnreachableError
from checkdam.runtime.job_status import JobStatus
from checkdam.server.catalog import driver_answers
from checkdam.server.catalog.driver_answers import DriverAnswers, Place, live_statuses, overviews
from checkdam.testing.manual_clock import ManualClock


class Spoken:
    """A server that sends these bytes to everybody who connects, and counts them."""

    def __init__(self, *parts: bytes, pause: float = 0.0) -> None:
        self.listening = socket.create_server(("localhost", 0))
        self.url = f"http://localhost:{self.listening.getsockname()[1]}"
        self.calls = self.sent = 0
        self._parts, self._pause, self._over = parts, pause, threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.calls += 1
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                for part in self._parts:
                    connection.sendall(part)
                    self.sent += 1
                    self._over.wait(self._pause)

    def close(self) -> None:
        self._over.set()
        self.listening.close()


@contextmanager
def spoken(*parts: bytes, pause: float = 0.0) -> Iterator[Spoken]:
    server = Spoken(*parts, pause=pause)
    try:
        yield server
    finally:
        server.close()


OK = b"HTTP/1.1 200 OK\r\n"


def test_a_driver_says_how_its_own_jobs_are_and_nothing_of_others(served: Served) -> None:
    jobs: dict[str, Place] = {JOB: Place(served.server.url), OTHER: Place(served.server.url)}

    found = live_statuses(DriverAnswers(), jobs)

    assert {job_id: status.state for job_id, status in found.items()} == {JOB: JobStatus.RUNNING}


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 2\r\n\r\n[]",
        OK + b'Content-Length: 12\r\n\r\n{"jobs": [7]',
        OK + b"Content-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
        OK + b"Content-Length: 300002\r\n\r\n" + b"[" * 300_000,
    ],
    ids=["a list", "cut off", "shorter than it says", "not found", "no HTTP", "nothing", "deep"],
)
def test_an_answer_that_is_something_else_says_nothing(answer: bytes) -> None:
    with spoken(answer) as server:
        assert live_statuses(DriverAnswers(), {JOB: Place(server.url)}) == {}


def test_odd_entries_of_an_answer_are_passed_over() -> None:
    content = msgspec.json.encode({"jobs": [7, {}, {"jid": JOB, "state": "DREAMING", "last-modification": 1}]})

    assert overviews(content) == [{}, {"jid": JOB, "state": "DREAMING", "last-modification": 1}]
    with spoken(OK + f"Content-Length: {len(content)}\r\n\r\n".encode() + content) as server:
        assert live_statuses(DriverAnswers(), {JOB: Place(server.url)}) == {}


def test_a_server_that_does_not_answer_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    answers = DriverAnswers(timedelta(seconds=30), clock)
    with spoken(b"") as server:
        for _ in range(3):
            answers.ask([Place(server.url)], "/x")
        assert server.calls == 1

        clock.advance(30)
        answers.ask([Place(server.url)], "/x")

        assert server.calls == 2


def test_many_silent_servers_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_answers, "PATIENCE", timedelta(milliseconds=50))
    with (
        socket.create_server(("localhost", 0), backlog=64) as silent,
        spoken(OK + b"Content-Length: 2\r\n\r\n{}") as up,
    ):
        url = f"http://localhost:{silent.getsockname()[1]}"

        found = DriverAnswers().ask([Place(up.url), Place(url)], "/x")

    assert found == {up.url: b"{}"}


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "https://localhost:8081",
        "http://localhost",
        "http://localhost:8081/jobs",
        "http://localhost:8081?x",
        "http://user:word@localhost:8081",
        "http://localhost:99999",
        "http://[::1",
        "localhost:8081",
        "",
    ],
)
def test_what_is_no_address_of_a_server_is_never_asked(url: str) -> None:
    assert not is_plain(url)
    assert DriverAnswers().ask([Place(url)], "/x") == {}
    with pytest.raises(ServerUnreachableError):
        bounded_request.send(url, "GET", "/", Limits(timedelta(seconds=1), 10))


def test_addresses_that_checkdam_records_are_plain() -> None:
    assert is_plain("http://localhost:8081")
    assert is_plain("http://[::1]:8081")
    assert is_plain("http://jobs.example:80")


def test_a_large_answer_is_cut_short() -> None:
    with spoken(OK + b"\r\n", *[b"x" * 1000] * 100) as server, pytest.raises(RequestRefusedError, match="5000 bytes"):
        bounded_request.send(server.url, "GET", "/", Limits(timedelta(seconds=10), 5000))


@pytest.mark.parametrize("begun", [b"H", OK + b"X: ", OK + b"\r\n"], ids=["status line", "headers", "body"])
def test_an_answer_that_trickles_takes_no_longer_than_allowed(begun: bytes) -> None:
    with spoken(begun, *[b"x"] * 100, pause=0.02) as server, pytest.raises(ServerUnreachableError) as told:
        bounded_request.send(server.url, "GET", "/", Limits(timedelta(milliseconds=100), 5000))

    assert isinstance(told.value.__cause__, TimeoutError)
    assert server.sent < 101, "it was waited for to its end"
