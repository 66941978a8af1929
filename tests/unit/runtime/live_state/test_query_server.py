"""The socket for queries: who is let in, what it understands, and how it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.flight as flight
import pytest

from checkdam.errors import SlotLostError, StateAccessError
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.live_state.query_connection import QueryAccess, QueryConnection, place_of
from checkdam.runtime.live_state.query_messages import FoundKeys, GetKeys, pack, unpack_answers, unpack_asks
from checkdam.runtime.live_state.query_server import QueryServer
from checkdam.runtime.slot.control_messages import pack_arguments
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress, exchange
from checkdam.runtime.slot.slot_server import SlotServer
from checkdam.types.type_info import type_info

TOKEN = "only to ask"


class Told:
    """Answers with what it was asked, backwards. Remembers it."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, request: bytes) -> bytes:
        self.asked.append(request)
        if request == b"?":
            raise msgspec.DecodeError("no question")
        if request == b"!":
            raise SlotLostError("the slot has ended")
        return request[::-1]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(params=["unix", "tcp"])
def access(request: pytest.FixtureRequest, told: Told, tmp_path: Path) -> Iterator[QueryAccess]:
    location = f"unix:{tmp_path}/q" if request.param == "unix" else "tcp:127.0.0.1:0"
    server = QueryServer(QueryAccess(location, TOKEN), told)
    yield QueryAccess(location if request.param == "unix" else f"tcp:127.0.0.1:{server.port}", TOKEN)
    server.close()


@pytest.fixture
def asking(access: QueryAccess) -> Iterator[QueryConnection]:
    connection = QueryConnection(access, 30)
    yield connection
    connection.close()


def raw(access: QueryAccess) -> socket.socket:
    family, place = place_of(access.location)
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(place)
    return connection


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:  # with what was sent after its end
        return True


def test_each_message_is_answered(asking: QueryConnection) -> None:
    assert [asking.ask(each) for each in (b"abc", b"", b"x" * 3_000_000 + b"y")] == [
        b"cba",
        b"",
        b"y" + b"x" * 3_000_000,
    ]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_question_with_another_token_is_not_looked_at(token: str, access: QueryAccess, told: Told) -> None:
    with pytest.raises(OSError):
        QueryConnection(QueryAccess(access.location, token), 30).ask(b"abc")

    assert not told.asked


@pytest.mark.parametrize(
    "first", [b"\xff\xff\xff\xff", b"\0\0\x40\0", b"PRI * HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_does_not_begin_with_a_token_is_refused_by_its_length(
    first: bytes, access: QueryAccess, told: Told
) -> None:
    with raw(access) as connection:
        connection.settimeout(4)  # less than a token is waited for
        connection.sendall(first)

        assert ended(connection)
    assert not told.asked


def test_messages_in_any_pieces_are_whole(access: QueryAccess, told: Told) -> None:
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in (TOKEN.encode(), b"abc", b"de"))
    with raw(access) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for byte in stream:
            connection.send(bytes([byte]))

        got = b""
        while len(got) < 4 + 3 + 4 + 2:
            got += connection.recv(100)

    assert got == b"\x00\x00\x00\x03cba\x00\x00\x00\x02ed"
    assert told.asked == [b"abc", b"de"]


@pytest.mark.parametrize("wrong", [b"?", b"!"])
def test_what_is_no_question_ends_its_connection_alone(
    wrong: bytes, access: QueryAccess, asking: QueryConnection
) -> None:
    asking.ask(b"abc")

    with pytest.raises(OSError):
        QueryConnection(access, 30).ask(wrong)

    assert asking.ask(b"abc") == b"cba"


def test_a_closed_connection_frees_the_thread_that_waits(access: QueryAccess, told: Told, tmp_path: Path) -> None:
    has_come, go_on = threading.Event(), threading.Event()

    def wait(request: bytes) -> bytes:
        has_come.set()
        assert go_on.wait(30)
        return request

    server = QueryServer(QueryAccess(f"unix:{tmp_path}/w", TOKEN), wait)
    connection = QueryConnection(QueryAccess(f"unix:{tmp_path}/w", TOKEN))
    lost: list[OSError] = []

    def ask() -> None:
        try:
            connection.ask(b"abc")
        except OSError as error:
            lost.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert has_come.wait(30)

    connection.close()
    asking.join(30)

    assert len(lost) == 1
    go_on.set()
    server.close()


def test_a_server_that_ends_ends_its_connections(tmp_path: Path, told: Told) -> None:
    access = QueryAccess(f"unix:{tmp_path}/e", TOKEN)
    server = QueryServer(access, told)
    connection = QueryConnection(access, 30)
    connection.ask(b"abc")

    server.close()

    with pytest.raises(OSError):
        connection.ask(b"abc")
    with pytest.raises(OSError):
        QueryConnection(access, 30).ask(b"abc")


@pytest.mark.parametrize("location", ["", "/tmp/q", "tcp:", "tcp:host", "tcp::1", "tcp:host:x", "http://host:1"])
def test_other_addresses_are_none(location: str) -> None:
    with pytest.raises(StateAccessError):
        place_of(location)


def test_the_token_to_ask_allows_nothing_else(tmp_path: Path) -> None:
    server = SlotServer(f"grpc+unix://{tmp_path}/s", "token")
    queries = QueryServer(QueryAccess(f"unix:{tmp_path}/q", TOKEN), server.answer_queries)
    address = SlotAddress(SubtaskIndex(0), f"grpc+unix://{tmp_path}/s", "elsewhere", 0, f"unix:{tmp_path}/q")
    reader = RemoteSlot(address, TOKEN, query_token=TOKEN)
    schema = type_info(str).arrow_schema
    try:
        for call in (
            lambda: reader._call("die"),
            lambda: reader._call("configure", b""),
            lambda: list(exchange(address, TOKEN, 1, Epoch(1), schema, [])),
        ):
            with pytest.raises(SlotLostError):
                call()
        for message in (pack_arguments(), b"die", flight.Action("die", b"").body.to_pybytes()):
            with pytest.raises(OSError):
                QueryConnection(reader.query_access, 30).ask(message)
        driver = RemoteSlot(address, "token")
        with pytest.raises(SlotLostError, match="is not configured"):  # so it lives, and the token was the reason
            driver._call("end_of_input")
        driver.disconnect()
    finally:
        reader.disconnect()
        queries.close()
        server.stopped.set()
        server.shutdown()


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(QueryAccess("unix:/q", TOKEN))


def test_answers_are_those_of_the_questions() -> None:
    ask = GetKeys("uid", "name", [b"k"])

    assert unpack_asks(pack([ask])) == [ask]
    assert unpack_answers(pack([FoundKeys(3, [None])])) == [FoundKeys(3, [None])]
