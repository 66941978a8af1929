"""A failure as the result of an asynchronous operation: three fields of Flink's, one for people."""

from __future__ import annotations

import traceback

import msgspec

from checkdam.errors import CheckdamError
from checkdam.flink.java_throwable import serialized_throwable
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.http_errors import RestError


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """`serialized_throwable` is what Flink's Java client reads, and all it reads; `message` is ours."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: str
    message: str


class UnknownJobError(RestError):
    """A verb on a job nobody knows; Flink's own class and words, which tools compare with."""

    java_class = "org.apache.flink.runtime.messages.FlinkJobNotFoundException"

    def __init__(self, job_id: str) -> None:
        super().__init__(404, f"Could not find Flink job ({job_id})")


def failure_cause(error: BaseException) -> FailureCause:
    kind = getattr(error, "java_class", f"{type(error).__module__}.{type(error).__qualname__}")
    message = _fit(str(error)) or type(error).__name__
    text = f"{kind}: {message}"
    if not isinstance(error, CheckdamError | RestError):  # what we foresaw explains itself; frames would bury it
        text = _fit("".join(traceback.format_exception(error)).rstrip())
    return FailureCause(kind, text, serialized_throwable(kind, message, text), message)


def _fit(text: str) -> str:
    """For everybody to read, and possible to write: half a character, as in a file's name, is no text in JSON."""
    return without_credentials(text).encode("utf-8", "backslashreplace").decode()


def named_cause(name: str, message: str, stack_trace: str) -> FailureCause:
    """The cause of a job's end, from what its record tells."""
    return FailureCause(name, stack_trace, serialized_throwable(name, message, stack_trace), message)
