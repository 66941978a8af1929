"""Failures as records: the user's own frames come first, since that is the code the user can fix."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from checkdam.errors import CheckdamError, UserFunctionError
from checkdam.runtime.monitor.job_records import ExceptionRecord, SlotRecord
from checkdam.runtime.monitor.masking import without_credentials

LONGEST_TRACE = 50_000
"""Longest stack trace that is kept, in characters: some exceptions carry their whole input."""


def exception_record(failure: CheckdamError, at: int, slots: Sequence[SlotRecord] = ()) -> ExceptionRecord:
    """Return the record of a failure. A user's exception is named by its own class, not by its carrier's."""
    name, task, subtask = type(failure).__name__, None, None
    text = _shortened("".join(traceback.format_exception(failure)))
    if isinstance(failure, UserFunctionError):
        name = failure.cause.partition(":")[0] or name
        task, subtask = failure.operator, failure.subtask
        text = f"{_shortened(failure.user_traceback.rstrip())}\n\n{_shortened(str(failure))}\n"
    slot = next((f"{slot.host}:{slot.pid}" for slot in slots if slot.subtask == subtask), None)
    message = _shortened(str(failure))
    return ExceptionRecord(name, message, stacktrace=text, at=at, task=task, subtask=subtask, slot=slot)


def _shortened(text: str) -> str:
    # Lone surrogates, as in a file name that is not UTF-8, could be neither sent nor archived.
    text = without_credentials(text).encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TRACE:
        return text
    half = LONGEST_TRACE // 2
    return f"{text[:half]}\n… {len(text) - LONGEST_TRACE} characters left out …\n{text[-half:]}"
