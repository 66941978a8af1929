"""Failures that cross a process border as text, and come out of Spark's stack traces as themselves again."""

from __future__ import annotations

import base64
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

from checkdam.errors import CheckdamError, UserFunctionError

_MARK = re.compile(r"<checkdam-error:([A-Za-z0-9+/=]+)>")
_LONGEST_RECORD = 500
_RUNTIME = str(Path(__file__).parent)


def user_error(operator: str, record: Any, cause: BaseException) -> UserFunctionError:
    """What the user's function raised, with their frames only: those of the runtime are nothing to them."""
    frames = traceback.TracebackException.from_exception(cause)
    frames.stack = traceback.StackSummary.from_list([f for f in frames.stack if not f.filename.startswith(_RUNTIME)])
    return UserFunctionError(
        operator=operator,
        record=_shortened(record),
        cause=f"{type(cause).__name__}: {cause}",
        user_traceback="".join(frames.format()),
    )


def _shortened(record: Any) -> str:
    text = repr(record)
    return text if len(text) <= _LONGEST_RECORD else f"{text[:_LONGEST_RECORD]}…"


def to_text(error: CheckdamError) -> str:
    """The error for people, followed by the error itself for `find_error`."""
    return f"{error} <checkdam-error:{base64.b64encode(pickle.dumps(error)).decode()}>"


def find_error(text: str) -> CheckdamError | None:
    """The error that `to_text` put somewhere into this text."""
    found = _MARK.search(text)
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found.group(1)))
    return error if isinstance(error, CheckdamError) else None
