"""All errors, as one tree.

CheckdamError
├── UsageError                   invalid input from the user; nothing has run         (exit code 2)
│   ├── ConfigError              a setting is unknown or has an invalid value
│   ├── JobGraphError            the job as written cannot run: uid, types, parallelism
│   │   ├── StateRequestError    a function asks for state that it cannot have
│   │   └── NoSuchCallError      a stream does not have this method; also an AttributeError
│   ├── JobFileError             the job file is missing or fails to import
│   └── StateAccessError         a function uses state in an unsupported way
├── RestoreError                 a checkpoint cannot be used; nothing has run         (exit code 1)
│   ├── CheckpointNotFoundError
│   ├── CheckpointDamagedError   truncated, altered, or one of its files is gone
│   ├── FormatTooNewError        written by a newer version
│   ├── RepeatedOutputError      restoring an older checkpoint would publish output again
│   └── StateNotRestorableError  intact, but incompatible with this job
├── StorageError                 the operation did not happen
│   └── StorageUncertainError    the operation may have happened: the reply was lost
├── SavepointError               a savepoint cannot be written to, or deleted from, the given place
├── StateNotReadyError           live state cannot be read right now; retrying helps
├── ServerUnreachableError       no server answers at the address of a REST server
├── RequestRefusedError          a REST server refused a request, or the requested work failed
├── CheckpointDeclinedError      a subtask could not take its snapshot
├── JobControlError              a request to a running job failed; the job continues unchanged
└── JobFailedError               the job failed, and restarts did not help
    ├── OutputLostError          output to be published is gone; an older checkpoint produces it again
    ├── UserFunctionError        the user's function raised; carries traceback, operator and record
    ├── SlotLostError            a slot or its executor is gone, or hangs
    ├── EngineLostError          Spark is gone, or hangs: only a new process can run the job again
    ├── GivenUpError             the job made no progress while it ended or failed over
    └── FencedError              another driver has taken over the job; this one stopped without changing anything
"""

from __future__ import annotations

from typing import Any


class CheckdamError(Exception):
    """A message that names what is wrong, and a hint that says what the user can do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[CheckdamError], args: tuple[Any, ...], fields: dict[str, Any]) -> CheckdamError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(CheckdamError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class JobGraphError(UsageError):
    pass


class StateRequestError(JobGraphError):
    pass


class NoSuchCallError(JobGraphError, AttributeError):
    pass


class JobFileError(UsageError):
    pass


class StateAccessError(UsageError):
    pass


class RestoreError(CheckdamError):
    pass


class CheckpointNotFoundError(RestoreError):
    pass


class CheckpointDamagedError(RestoreError):
    pass


class FormatTooNewError(RestoreError):
    pass


class RepeatedOutputError(RestoreError):
    pass


class StateNotRestorableError(RestoreError):
    pass


class StorageError(CheckdamError):
    pass


class StorageUncertainError(StorageError):
    pass


class SavepointError(CheckdamError):
    pass


class StateNotReadyError(CheckdamError):
    pass


class ServerUnreachableError(CheckdamError):
    pass


class RequestRefusedError(CheckdamError):
    status = 0  # of the HTTP response; 0: the request was accepted, and its work failed


class CheckpointDeclinedError(CheckdamError):
    pass


class JobControlError(CheckdamError):
    pass


class JobFailedError(CheckdamError):
    pass


def operator_title(name: str, uid: str | None) -> str:
    """Return the name of an operator in messages: its uid, which is unique in the job, and its name."""
    return f'"{uid}" ({name})' if uid and uid != name else f'"{name}"'


class OutputLostError(JobFailedError):
    pass


class UserFunctionError(JobFailedError):
    """The user's own code raised; `user_traceback` holds their frames only.

    `where` names the method if it does not process records one by one: open, a source, a timer, a sink. `record` is
    empty if the method was not called for a record.
    """

    def __init__(
        self,
        *,
        operator: str,
        record: str,
        cause: str,
        user_traceback: str,
        where: str | None = None,
        uid: str = "",
    ) -> None:
        at = f"on record {record}" if record else f"in {where}"
        super().__init__(f"operator {operator_title(operator, uid)} failed {at}: {cause}")
        self.operator = operator
        self.uid = uid
        self.record = record
        self.cause = cause
        self.user_traceback = user_traceback
        self.where = where
        self.subtask: int | None = None  # where it was raised, if in a slot


class SlotLostError(JobFailedError):
    pass


class FencedError(JobFailedError):
    pass


class EngineLostError(JobFailedError):
    pass


class GivenUpError(JobFailedError):
    pass
