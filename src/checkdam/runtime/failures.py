"""Carries errors to the driver: out of user code, between processes, and through the text of Spark's exceptions.

An error crosses a process border as an `ErrorMessage`: data of a fixed shape, never code. The text of one of Spark's
exceptions may quote records, so a message found there counts only if it is signed with the attempt's token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec

from checkdam import errors
from checkdam.errors import (
    CheckdamError,
    JobFailedError,
    RestoreError,
    StateRequestError,
    UserFunctionError,
    operator_title,
)
from checkdam.graph.operators import Operator

_LONGEST_RECORD = 500
_LONGEST_TEXT = 20_000
"""Longest text in a message, in characters: some exceptions carry their whole input."""
_MOST_NOTES = 10
_MARK = re.compile(r"<checkdam-error:([0-9a-f]{64}):([A-Za-z0-9+/=]{1,2000000})>")
_RUNTIME = str(Path(__file__).parent)
_KINDS = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CheckdamError)
}


NO_RECORD: Final = object()
"""Stands for the record where user code was called without one."""


def user_error(
    operator: Operator | str, record: Any, cause: BaseException, *, where: str | None = None
) -> CheckdamError:
    """Describe the user function's error, with the user's stack frames only; `where` as in UserFunctionError.

    A state that the function declares and cannot have is not a failure of the function: that error is kept as it is, so
    that no restart is tried.
    """
    name, uid = (operator, "") if isinstance(operator, str) else (operator.name, operator.uid or "")
    if isinstance(cause, StateRequestError | RestoreError):
        named = f'"{uid or name}"' in cause.message
        message = cause.message if named else f"operator {operator_title(name, uid)}: {cause.message}"
        return type(cause)(message, hint=cause.hint)
    frames = traceback.TracebackException.from_exception(cause)
    frames.stack = traceback.StackSummary.from_list([f for f in frames.stack if not is_of_runtime(f)])
    return UserFunctionError(
        operator=name,
        uid=uid,
        record="" if record is NO_RECORD else _cut(repr(record), _LONGEST_RECORD),
        cause=f"{type(cause).__name__}: {cause}",
        user_traceback="".join(frames.format()),
        where=None if where is None else _cut(where, _LONGEST_RECORD),
    )


def is_of_runtime(frame: traceback.FrameSummary) -> bool:
    """Return whether a stack frame is of the runtime and not of user code."""
    return frame.filename.startswith(_RUNTIME)


class UserFailure(msgspec.Struct, frozen=True):
    """The fields that only a UserFunctionError has."""

    operator: str
    record: str
    cause: str
    user_traceback: str
    subtask: int | None
    where: str | None = None
    uid: str = ""


class ErrorMessage(msgspec.Struct, frozen=True):
    """An error as data. `kind` is the name of a class in errors.py."""

    kind: str
    message: str
    hint: str | None = None
    notes: tuple[str, ...] = ()
    user: UserFailure | None = None

    @classmethod
    def of(cls, error: BaseException) -> ErrorMessage:
        """Describe any error; one that is not Checkdam's own becomes a JobFailedError."""
        if not isinstance(error, CheckdamError):
            error = JobFailedError(f"a slot failed: {type(error).__name__}: {error}")
        user = None
        if isinstance(error, UserFunctionError):
            user = UserFailure(
                operator=_text(error.operator),
                record=_text(error.record),
                cause=_text(error.cause),
                user_traceback=_text(error.user_traceback),
                subtask=error.subtask,
                where=None if error.where is None else _text(error.where),
                uid=_text(error.uid),
            )
        return cls(
            kind=next(kind.__name__ for kind in type(error).__mro__ if _KINDS.get(kind.__name__) is kind),
            message=_text(error.message),
            hint=None if error.hint is None else _text(error.hint),
            notes=tuple(map(_text, getattr(error, "__notes__", [])[:_MOST_NOTES])),
            user=user,
        )

    def error(self) -> CheckdamError:
        """Rebuild the error.

        Raises:
            ValueError: there is no such kind of error.
        """
        kind = _KINDS.get(self.kind)
        if kind is None or (kind is UserFunctionError) != (self.user is not None):
            raise ValueError(f"{self.kind} is not the name of an error")
        error: CheckdamError
        if self.user is None:
            error = kind(self.message, hint=self.hint)
        else:
            user = self.user
            error = UserFunctionError(
                operator=user.operator,
                uid=user.uid,
                record=user.record,
                cause=user.cause,
                user_traceback=user.user_traceback,
                where=user.where,
            )
            error.subtask = user.subtask
        for note in self.notes:
            error.add_note(note)
        return error


_decode = msgspec.json.Decoder(ErrorMessage).decode


def to_text(error: CheckdamError, token: str) -> str:
    """Format the error for people, followed by a signed message for `find_error`. The token itself is not included."""
    payload = base64.b64encode(msgspec.json.encode(ErrorMessage.of(error))).decode()
    return f"{_text(str(error))} <checkdam-error:{_signature(payload, token)}:{payload}>"


def find_error(text: str, token: str) -> CheckdamError | None:
    """Find the error that `to_text` put into this text with the same token.

    The text may quote records, so anything that is not signed with the token is ignored.
    """
    for signature, payload in _MARK.findall(text):
        if hmac.compare_digest(signature, _signature(payload, token)):
            return _decode(base64.b64decode(payload)).error()
    return None


def _signature(payload: str, token: str) -> str:
    return hmac.new(token.encode(), payload.encode(), hashlib.sha256).hexdigest()


def _text(text: str) -> str:
    # Lone surrogates, as in a file name that is not UTF-8, could not be sent.
    return _cut(text, _LONGEST_TEXT).encode("utf-8", "backslashreplace").decode()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
