from __future__ import annotations

import socket

import pytest

from checkdam.config import Configuration
from checkdam.errors import CheckdamError, ConfigError
from checkdam.server.app.ports import candidate_ports, listen


def test_rest_port_means_it_or_the_next_free_one() -> None:
    assert candidate_ports(Configuration())[:3] == [8081, 8082, 8083]
    assert candidate_ports(Configuration().with_value("rest.port", 65535)) == [65535]


def test_bind_port_says_exactly_which_ports() -> None:
    configuration = Configuration().with_value("rest.bind-port", "8081, 8085-8087")

    assert candidate_ports(configuration) == [8081, 8085, 8086, 8087]


@pytest.mark.parametrize("text", ["web", "8081-", "8090-8085", "70000", "1,,2", "8081;8082"])
def test_what_is_no_list_of_ports_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"rest\.bind-port"):
        candidate_ports(Configuration().with_value("rest.bind-port", text))


def test_a_port_that_is_taken_is_passed_over() -> None:
    with listen("localhost", [0]) as first:
        taken = first.getsockname()[1]
        with listen("localhost", [taken, 0]) as second:
            assert second.getsockname()[1] != taken


def test_no_free_port_is_told_with_what_was_tried() -> None:
    with listen("localhost", [0]) as first:
        taken = first.getsockname()[1]
        with pytest.raises(CheckdamError, match=f"tried {taken}"):
            listen("localhost", [taken])


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("localhost", [0]) as found:
        assert found.proto == socket.IPPROTO_TCP  # asyncio turns Nagle's algorithm off only where it sees this
