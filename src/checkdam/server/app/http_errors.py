"""Error responses in Flink's form: {"errors": ["…"]}."""

from __future__ import annotations

import traceback

import msgspec

from checkdam.errors import (
    CheckdamError,
    CheckpointNotFoundError,
    FormatTooNewError,
    RestoreError,
    SlotLostError,
    StateAccessError,
    StateNotReadyError,
    StorageError,
    UsageError,
)


class ErrorBody(msgspec.Struct, frozen=True):
    """Flink's ErrorResponseBody."""

    errors: list[str]


class RestError(Exception):
    """An error response; `headers` are sent with it."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


def job_not_found(job_id: str) -> RestError:
    return RestError(404, f"Job {job_id} not found")


_STATUS: tuple[tuple[type[CheckdamError], int], ...] = (  # the first match applies
    (StateAccessError, 404),  # unknown uid or state name
    (UsageError, 400),
    (CheckpointNotFoundError, 404),
    (FormatTooNewError, 409),
    (RestoreError, 409),
    (StateNotReadyError, 503),
    (SlotLostError, 503),  # the job is failing over: a retry helps
    (StorageError, 503),
)


def status_of(error: CheckdamError) -> int:
    """Return the HTTP status for an error that a handler let through."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 409)


def unhandled(error: BaseException) -> ErrorBody:
    """Return Flink's two entries for an unexpected error."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return ErrorBody(
        ["Internal server error.", f"<Exception on server side:\n{text}\n\nEnd of exception on server side>"]
    )
