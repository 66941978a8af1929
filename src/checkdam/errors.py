"""Everything that can go wrong, as one tree.

CheckdamError
├── UsageError                   the user's words are wrong; nothing has run          (exit code 2)
│   ├── ConfigError              a setting is unknown or ill-typed
│   ├── JobGraphError            the job as written cannot run: uid, types, parallelism
│   │   ├── StateRequestError    a function asks for state that it cannot have
│   │   └── NoSuchCallError      a stream does not have this call; also an AttributeError
│   ├── JobFileError             the job file is missing or fails to import
│   └── StateAccessError         a function uses state in a way it cannot be used
├── RestoreError                 a checkpoint cannot be used; nothing has run         (exit code 1)
│   ├── CheckpointNotFoundError
│   ├── CheckpointDamagedError   truncated, altered, or a file of it is gone
│   ├── FormatTooNewError        written by a newer version
│   ├── RepeatedOutputError      going back to an older one would publish output again
│   └── StateNotRestorableError  whole, but does not fit this job
├── StorageError                 the operation did not happen
│   └── StorageUncertainError    it may have happened: the reply was lost
├── SavepointError               a savepoint cannot be taken there, or is none to dispose of
├── StateNotReadyError           live state cannot be told right now; asking again helps
├── ServerUnreachableError       nobody answers at the address of a REST server
├── RequestRefusedError          a REST server said no, or what it was asked to do failed
├── CheckpointDeclinedError      a subtask could not take its snapshot
├── JobControlError              what was asked of a running job was not done; the job goes on as it would have
└── JobFailedError               the job ended with a failure that restarts did not cure
    ├── OutputLostError          output that was to be published is gone; an older checkpoint produces it again
    ├── UserFunctionError        the user's function raised; carries traceback, operator and record
    ├── SlotLostError            a slot or its executor is gone, or hangs
    ├── EngineLostError          Spark itself is gone, or hangs: only another process can run the job again
    ├── GivenUpError             the job was to end or to fail over, and hangs
    └── FencedError              another driver has taken the job over; this one has stopped, and touched nothing
"""

from __future__ import annotations

from typing import Any


class CheckdamError(Exception):
    """What is wrong, naming the thing; the hint says what the user can do."""

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
    status = 0  # of the HTTP answer; 0: the request was taken, and its work failed


class CheckpointDeclinedError(CheckdamError):
    pass


class JobControlError(CheckdamError):
    pass


class JobFailedError(CheckdamError):
    pass


def operator_title(name: str, uid: str | None) -> str:
    """How messages name an operator: by its uid, which is unique in the job, with its name beside it."""
    return f'"{uid}" ({name})' if uid and uid != name else f'"{name}"'


class OutputLostError(JobFailedError):
    pass


class UserFunctionError(JobFailedError):
    """The user's own code raised; `user_traceback` holds their frames only.

    `where` names the method if it was not a function that works on one record after the other: open, a source, a
    timer, a sink. `record` is empty if the method was called for no record.
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
        self.subtask: int | None = None  # where that was, if it was in a slot


class SlotLostError(JobFailedError):
    pass


class FencedError(JobFailedError):
    pass


class EngineLostError(JobFailedError):
    pass


class GivenUpError(JobFailedError):
    pass
