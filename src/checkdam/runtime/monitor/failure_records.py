"""Failures as records: the user's own frames first, since theirs is the code they can mend."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from checkdam.errors import CheckdamError, UserFunctionError
from checkdam.runtime.monitor.job_records import ExceptionRecord, SlotRecord
from checkdam.runtime.monitor.masking import without_credentials

LONGEST_TRACE = 50_000
"""Characters of a stack trace that are kept: some exceptions carry their whole input."""


def exception_record(failure: CheckdamError, at: int, slots: Sequence[SlotRecord] = ()) -> ExceptionRecord:
    """What a failure tells. For the user's own exception its class is named, not the one that carried it here."""
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
    # Half a character, as in a file's name that is no UTF-8, could be neither sent nor archived.
    text = without_credentials(text).encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TRACE:
        return text
    half = LONGEST_TRACE // 2
    return f"{text[:half]}\n… {len(text) - LONGEST_TRACE} characters left out …\n{text[-half:]}"
