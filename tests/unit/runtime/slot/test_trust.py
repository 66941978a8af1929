"""Who may call a slot, and what its answers may do: the real server and client."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from checkdam.errors import CheckdamError, JobFailedError, SlotLostError, UserFunctionError
from checkdam.ids import CheckpointId, Epoch, SubtaskIndex
from checkdam.runtime.failures import user_error
from checkdam.runtime.slot.control_messages import (
    AWAIT,
    CALLS,
    pack_answer,
    pack_arguments,
    pack_failure,
    unpack_answer,
    unpack_arguments,
)
from checkdam.runtime.slot.messages import EpochReport, OperatorCounts
from checkdam.runtime.slot.slot_client import RemoteSlot, SlotAddress, exchange
from checkdam.runtime.slot.slot_server import TOKEN_HEADER, SlotServer
from checkdam.runtime.spark.slot_launcher import _own_address
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import (
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    Redistribution,
    SavepointFormat,
    SavepointTarget,
    SlotSnapshot,
    StateFile,
)
from checkdam.state.state_count import StateCount

TOKEN = "right"
_DESCRIPTOR = flight.FlightDescriptor.for_command(b"\x92\x01\x01")

CALLS_OF_FLIGHT: dict[str, Callable[[Any, Any], Any]] = {
    "Handshake": lambda client, options: client.authenticate_basic_token("a", "b", options),
    "ListFlights": lambda client, options: list(client.list_flights(b"", options)),
    "GetFlightInfo": lambda client, options: client.get_flight_info(_DESCRIPTOR, options),
    "GetSchema": lambda client, options: client.get_schema(_DESCRIPTOR, options),
    "DoGet": lambda client, options: client.do_get(flight.Ticket(b"t"), options).read_all(),
    "DoPut": lambda client, options: client.do_put(_DESCRIPTOR, pa.schema([]), options)[0].close(),
    "DoAction": lambda client, options: list(client.do_action(flight.Action("hold", pack_arguments()), options)),
    "ListActions": lambda client, options: client.list_actions(options),
    "DoExchange": lambda client, options: client.do_exchange(_DESCRIPTOR, options)[1].read_chunk(),
}


class _Bomb:
    """Creates a directory when it is unpickled."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._directory),)


@pytest.fixture
def location(tmp_path: Path) -> Iterator[str]:
    """Where a slot listens that nobody has configured."""
    location = f"grpc+unix://{tmp_path}/s"
    server = SlotServer(location, TOKEN)
    yield location
    server.stopped.set()
    server.shutdown()


def _address(location: str) -> SlotAddress:
    return SlotAddress(SubtaskIndex(0), location, "here", 0)


@pytest.mark.parametrize("headers", [[], [(TOKEN_HEADER, "wrong")], [(TOKEN_HEADER, ""), (TOKEN_HEADER, TOKEN)]])
@pytest.mark.parametrize("call", CALLS_OF_FLIGHT)
def test_every_call_without_the_token_is_refused(call: str, headers: list[tuple[str, str]], location: str) -> None:
    options = flight.FlightCallOptions(timeout=10, headers=[(n.encode(), v.encode()) for n, v in headers])

    with flight.FlightClient(location) as client, pytest.raises((flight.FlightUnauthenticatedError, OSError)) as caught:
        CALLS_OF_FLIGHT[call](client, options)

    assert "wrong or missing token" in str(caught.value)


def test_what_comes_without_the_token_is_not_unpickled(location: str, tmp_path: Path) -> None:
    bomb = pickle.dumps(_Bomb(tmp_path / "ran"))
    stranger, driver = (RemoteSlot(_address(location), token) for token in ("wrong", TOKEN))

    with pytest.raises(SlotLostError):
        stranger._call("configure", bomb)

    assert not (tmp_path / "ran").exists()
    with pytest.raises(CheckdamError):
        driver._call("configure", bomb)
    assert (tmp_path / "ran").exists()  # so the bomb is one
    stranger.disconnect()
    driver.disconnect()


@pytest.mark.parametrize("name", ["__init__", "configured", "_on_die", "stop", "", "shutdown"])
def test_only_calls_of_the_table_are_there(name: str, location: str) -> None:
    slot = RemoteSlot(_address(location), TOKEN)

    with pytest.raises(SlotLostError, match="has no call"):
        slot._call(name)

    slot.disconnect()


def test_the_server_answers_every_call_of_the_table(location: str) -> None:
    server = SlotServer(f"{location}2", TOKEN)
    assert {*server._handlers, AWAIT} == set(CALLS)
    server.shutdown()


class _Liar(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A slot that answers whatever it likes."""

    def __init__(self, location: str, answer: bytes) -> None:
        super().__init__(location)
        self._answer = answer

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        yield flight.Result(self._answer)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        writer.write_metadata(self._answer)


def test_no_answer_of_a_slot_runs_code_in_the_driver_or_a_task(tmp_path: Path) -> None:
    bomb = pickle.dumps((True, _Bomb(tmp_path / "ran")))
    server = _Liar(f"grpc+unix://{tmp_path}/s", bomb)
    slot = RemoteSlot(_address(f"grpc+unix://{tmp_path}/s"), TOKEN)

    for call in (
        lambda: slot.end_epoch(Epoch(1), commit=False),
        lambda: slot.snapshot(CheckpointId(1)),
        lambda: slot.hold(lambda beat: None),
    ):
        with pytest.raises(SlotLostError):
            call()
    with pytest.raises(SlotLostError):
        list(exchange(slot.address, TOKEN, 1, Epoch(1), pa.schema([]), []))

    assert not (tmp_path / "ran").exists()
    slot.disconnect()
    server.shutdown()


SNAPSHOT = SlotSnapshot(
    CheckpointId(7),
    SubtaskIndex(1),
    (
        OperatorSnapshot(
            "count",  # type: ignore[arg-type]  # a uid
            "count words",
            keyed=KeyedStateHandle(KeyGroupRange(0, 63), (StateFile("shared/a", 9, "000.sst"),), "rocksdb"),
            committables=(b"\x00\xff",),
            operator_state=OperatorStateHandle((("list", Redistribution.UNION, (0, 4)),), b"\x01\x02"),
            is_finished=True,
        ),
        OperatorSnapshot(
            "in",  # type: ignore[arg-type]  # a uid
            "in",
            operator_state=OperatorStateHandle((), StateFile("shared/b", 1)),
        ),
    ),
    new_files=(StateFile("shared/a", 9, "000.sst"),),
    state_bytes=9,
)
REPORT = EpochReport(
    Epoch(4),
    SubtaskIndex(1),
    {3: OperatorCounts(1, 2, 3, 4, 0.5, StateCount(6, None, is_exact=False))},
    ("ä", ""),
    {"sink": (b"\xff",)},  # type: ignore[dict-item]  # a uid
    event_time={2: -(2**63)},
    watermarks={3: 2**63 - 1},
    next_due=None,
)


@pytest.mark.parametrize(
    ("call", "answer"), [("snapshot", SNAPSHOT), ("end_epoch", REPORT), ("seal", 0.25), ("close", None)]
)
def test_an_answer_comes_back_as_it_was(call: str, answer: object) -> None:
    again = unpack_answer(call, pack_answer(answer))

    assert again == answer
    assert type(again) is type(answer)


def test_arguments_come_as_they_were() -> None:
    target = SavepointTarget("file:///somewhere", SavepointFormat.NATIVE)

    assert unpack_arguments("seal", pack_arguments(1, 2, target, False)) == (1, 2, target, False)
    assert unpack_arguments("seal", pack_arguments(1, 2, None, True)) == (1, 2, None, True)


def test_an_answer_to_another_call_is_none() -> None:
    with pytest.raises(SlotLostError, match='"snapshot"'):
        unpack_answer("snapshot", pack_answer(REPORT))


def test_an_error_that_is_not_ours_reaches_the_driver_with_its_text() -> None:
    with pytest.raises(JobFailedError, match="KeyError: 'x'"):
        unpack_answer("close", pack_failure(KeyError("x")))


def test_a_long_error_passes_an_exchange_whole(tmp_path: Path) -> None:
    """It was lost in gRPC's trailers, which take some 8 KB."""
    server = _Failing(f"grpc+unix://{tmp_path}/s", TOKEN)
    address = _address(f"grpc+unix://{tmp_path}/s")
    batch = pa.record_batch({"a": list(range(1000))})

    with pytest.raises(UserFunctionError) as caught:
        list(exchange(address, TOKEN, 1, Epoch(1), batch.schema, [batch] * 1000))

    assert caught.value.cause == "ValueError: " + "x" * 15_000
    server.shutdown()


class _Failing(SlotServer):
    def _exchange(self, level: int, epoch: Epoch, reader: Any, writer: Any) -> None:
        raise user_error("parse", "record", ValueError("x" * 15_000))


def test_a_slot_that_has_not_been_configured_says_so_in_an_exchange(location: str) -> None:
    with pytest.raises(SlotLostError, match="is not configured"):
        list(exchange(_address(location), TOKEN, 1, Epoch(1), pa.schema([]), []))


def test_a_slot_on_tcp_listens_only_on_the_address_towards_the_driver() -> None:
    assert _own_address("127.0.0.1") == "127.0.0.1"
    server = SlotServer(f"grpc+tcp://{_own_address('127.0.0.1')}:0", TOKEN)

    with socket.create_connection(("127.0.0.1", server.port), timeout=10):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=10)

    server.shutdown()


class _Exiting(SlotServer):
    """Runs user code that wants to end the process."""

    def _exchange(self, level: int, epoch: Epoch, reader: Any, writer: Any) -> None:
        sys.exit(3)

    def _on_configure(self, setup: bytes) -> None:
        sys.exit(4)


@pytest.mark.timeout(30)
def test_user_code_that_calls_exit_is_an_error_of_the_call(tmp_path: Path) -> None:
    location = f"grpc+unix://{tmp_path}/s"
    server = _Exiting(location, TOKEN)

    with pytest.raises(JobFailedError, match="SystemExit: 3"):
        list(exchange(_address(location), TOKEN, 1, Epoch(1), pa.schema([]), []))
    with pytest.raises(JobFailedError, match="SystemExit: 4"):
        unpack_answer("configure", _asked(location, "configure", b"setup"))

    server.shutdown()


def _asked(location: str, call: str, *arguments: object) -> bytes:
    options = flight.FlightCallOptions(headers=[(TOKEN_HEADER.encode(), TOKEN.encode())])
    with flight.connect(location) as client:
        [result] = client.do_action(flight.Action(call, pack_arguments(*arguments)), options)
        return bytes(result.body.to_pybytes())
