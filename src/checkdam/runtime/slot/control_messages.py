"""The driver's control calls to a slot: arguments and answers, as msgpack of fixed types.

Every call is answered within a heartbeat, by `Pending` if it is not done by then; `await` with its ticket asks again.

Only `configure` carries code: the user's functions, pickled by the driver. The slot unpickles it only after checking
the attempt's token. A slot's answer is data, so no slot can run code in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from checkdam.errors import CheckdamError, SlotLostError
from checkdam.ids import CheckpointId, Epoch
from checkdam.runtime.failures import ErrorMessage
from checkdam.runtime.logs.log_reader import LogFile, LogPart
from checkdam.runtime.slot.messages import EpochReport
from checkdam.runtime.slot.slot_watch import Beat
from checkdam.runtime.stalls import Stall
from checkdam.state.snapshot_handles import SavepointTarget, SlotSnapshot


@dataclass(frozen=True)
class Call:
    """The types of a call's arguments and of its answer."""

    arguments: Any
    answer: Any = None


AWAIT: Final = "await"
TASK_REPORTS: Final = "task_reports"

CALLS: Final = {
    "configure": Call(tuple[bytes]),  # a SlotSetup, pickled
    "end_epoch": Call(tuple[Epoch, bool], EpochReport),
    "end_of_input": Call(tuple[()]),
    "seal": Call(tuple[CheckpointId, Epoch, SavepointTarget | None, bool], float),
    "snapshot": Call(tuple[CheckpointId], SlotSnapshot),
    "completed": Call(tuple[CheckpointId]),
    "aborted": Call(tuple[CheckpointId]),
    "released": Call(tuple[CheckpointId]),
    "hold": Call(tuple[()]),
    "log_files": Call(tuple[()], list[LogFile]),
    "read_log": Call(tuple[str, int, int, int | None], bytes | None),
    "tail_log": Call(tuple[str, str | None, int], LogPart | None),
    "die": Call(tuple[()]),
    "close": Call(tuple[()]),
    AWAIT: Call(tuple[int]),  # answered as the call with this ticket
    TASK_REPORTS: Call(tuple[str, Stall | None]),  # from a Spark task; the only call not from the driver
}
"""All calls, by name."""


@dataclass(frozen=True)
class Pending:
    """The call is in progress, and the slot is alive."""

    ticket: int
    beat: Beat


# Created here, by one thread: msgspec inspects a class when it first decodes one, and two threads that do so
# concurrently crash the process. There are as many answering threads as slots.
_encoder = msgspec.msgpack.Encoder()
_arguments = {name: msgspec.msgpack.Decoder(call.arguments) for name, call in CALLS.items()}
_answers = {name: msgspec.msgpack.Decoder(call.answer) for name, call in CALLS.items()}
_envelope = msgspec.msgpack.Decoder(tuple[bool | None, msgspec.Raw])
_pending = msgspec.msgpack.Decoder(Pending)
_error = msgspec.msgpack.Decoder(ErrorMessage)


def pack_arguments(*arguments: Any) -> bytes:
    return _encoder.encode(arguments)


def unpack_arguments(call: str, data: bytes) -> tuple[Any, ...]:
    return _arguments[call].decode(data)  # type: ignore[no-any-return]  # per call


def pack_answer(value: Any) -> bytes:
    return _encoder.encode((True, value))


def pack_pending(pending: Pending) -> bytes:
    return _encoder.encode((None, pending))


def pack_failure(error: BaseException) -> bytes:
    """Pack an error in place of an answer; one that is not Checkdam's own becomes a JobFailedError."""
    return _encoder.encode((False, msgspec.Raw(pack_error(error))))


def pack_error(error: BaseException) -> bytes:
    return _encoder.encode(ErrorMessage.of(error))


def unpack_answer(call: str, data: bytes) -> Any:
    """Return a slot's answer, or Pending.

    Raises:
        CheckdamError: the error that the slot answered with.
        SlotLostError: this is not an answer to such a call.
    """
    try:
        succeeded, value = _envelope.decode(data)
        if succeeded is None:
            return _pending.decode(value)
        if succeeded:
            return _answers[call].decode(value)
    except msgspec.DecodeError as reason:
        raise SlotLostError(f'a slot answered "{call}" with something else: {reason}') from reason
    raise unpack_error(value)


def unpack_error(data: bytes | msgspec.Raw) -> CheckdamError:
    """Return the error that a slot sent."""
    try:
        return _error.decode(data).error()
    except ValueError as reason:  # includes msgspec's DecodeError
        return SlotLostError(f"a slot sent an error that is none: {reason}")
