"""Log files: under Flink's paths for the driver and its slots, and of each job, running or ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from checkdam.errors import SlotLostError
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.logs.log_reader import (
    DRIVER,
    LOG,
    MOST_BYTES,
    STDOUT,
    LogFile,
    LogSource,
    log_directory,
    process_of,
    slot_process,
)
from checkdam.runtime.monitor.job_records import JobRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Natural, Query, Reads
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.cluster import find_slot

_TEXT = "text/plain; charset=utf-8"
_USUAL_BYTES = 256 << 10
_TAIL = Query("tail", Natural, "Only the last bytes, this many.")
_OFFSET = Query("offset", Natural, "Begin at this byte.", default=0)
_LIMIT = Query("limit", Natural, "At most this many bytes.")


class LogInfo(msgspec.Struct, frozen=True):
    """One log file. `mtime` is in milliseconds since 1970; `process` is ours: driver, slot-0, slot-1 …"""

    name: str
    size: int
    mtime: int
    process: str


class LogList(msgspec.Struct, frozen=True):
    logs: list[LogInfo]


class JobLogList(msgspec.Struct, frozen=True):
    """`directory` is on the driver's machine; null for a job that writes no log files."""

    directory: str | None
    logs: list[LogInfo]


class LogLines(msgspec.Struct, frozen=True, rename="kebab"):
    """Whole lines of a log. `cursor` asks for those that follow; `has-gap`: lines before these are left out."""

    text: str
    cursor: str
    has_gap: bool


class LogUrl(msgspec.Struct, frozen=True):
    url: str


@dataclass(frozen=True)
class _JobLogs:
    """The log files of one job: in its directory, or at its running slots on other machines."""

    record: JobRecord
    running: RunningJob | None

    def files(self) -> list[LogFile]:
        local = self._local()
        found: list[LogFile] = []
        if local is not None:
            with suppress(OSError):  # not there yet, removed, or not readable here
                found = list(local.files())
        here = {file.process for file in found}
        for slot in self.record.slots:
            if self.running is not None and slot_process(slot.subtask) not in here:
                found += self._of_slot(slot.subtask)
        return found

    def sources(self, name: str) -> Iterator[LogSource]:
        """Yield the places where the file may be."""
        local = self._local()
        if local is not None:
            yield local
        kind, _, number = process_of(name).partition("-")
        remote = self.running.logs(int(number)) if self.running is not None and kind == "slot" else None
        if remote is not None:
            yield remote

    def is_expected(self, name: str) -> bool:
        """Return whether a file that is not there is the one of a process that has just not written to it."""
        processes = {file.process for file in self.files()}
        if self.running is not None:
            processes |= {DRIVER, *(slot_process(slot.subtask) for slot in self.record.slots)}
        names = {f"{each}.{kind}" for each in processes for kind in (LOG, STDOUT)}
        return self.record.logs is not None and name in names

    def _local(self) -> LogSource | None:
        return log_directory(self.record.logs, self.record.id)

    def _of_slot(self, subtask: int) -> Iterable[LogFile]:
        assert self.running is not None
        remote = self.running.logs(subtask)
        if remote is not None:
            with suppress(OSError, SlotLostError):  # the job fails over: the next answer has them
                return [file for file in remote.files() if file.process == slot_process(subtask)]
        return []


def _job_logs(jobs: Jobs, job_id: str) -> _JobLogs:
    return _JobLogs(jobs.record(job_id), jobs.running(job_id))


def _job_of_driver(jobs: Jobs) -> _JobLogs:
    """Return the logs of the job that `/jobmanager` stands for: the one that runs, or has run last. Raise 404."""
    records = jobs.running_records() or jobs.records()
    if not records:
        raise RestError(404, "There is no job, and so no log.")
    return _JobLogs(records[0], jobs.running(records[0].id))


def _missing(logs: _JobLogs, name: str) -> RestError:
    if logs.record.logs is None:
        return RestError(404, f"Job {logs.record.id} writes no log files: env.log.dir is not set.")
    return RestError(404, f"There is no log file {name} of job {logs.record.id} in {logs.record.logs}.")


def _text(logs: _JobLogs, name: str, call: ApiCall) -> Response:
    """Answer with a file, or the part of it that was asked for."""
    for source in logs.sources(name):
        with suppress(OSError):
            file = next((each for each in source.files() if each.name == name), None)
            if file is not None:
                begin, end = _range(file.size, call)
                size = str(max(0, end - begin))
                return StreamingResponse(_chunks(source, file, begin, end), 200, {"Content-Length": size}, _TEXT)
    if logs.is_expected(name):
        return Response(b"", 200, None, _TEXT)
    raise _missing(logs, name)


def _range(size: int, call: ApiCall) -> tuple[int, int]:
    if call.query["tail"] is not None:
        return max(0, size - call.query["tail"]), size
    begin, limit = call.query["offset"], call.query["limit"]
    return begin, size if limit is None else min(size, begin + limit)


def _chunks(source: LogSource, file: LogFile, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        data = source.read(file.name, begin, min(end - begin, MOST_BYTES), file.id)
        if not data:
            raise OSError(f"{file.name} was truncated while it was read")
        begin += len(data)
        yield data


def _listed(files: Iterable[LogFile]) -> list[LogInfo]:
    return [LogInfo(file.name, file.size, file.modified_at, file.process) for file in files]


def _of_driver(jobs: Jobs, _: ApiCall) -> LogList:
    return LogList(_listed(each for each in _job_of_driver(jobs).files() if each.process == DRIVER))


def _driver_file(jobs: Jobs, name: str | None, call: ApiCall) -> Response:
    logs, wanted = _job_of_driver(jobs), name or call.path["filename"]
    if process_of(wanted) != DRIVER:
        raise _missing(logs, wanted)
    return _text(logs, wanted, call)


def _of_slot(jobs: Jobs, call: ApiCall) -> LogList:
    record, slot = find_slot(jobs, call)
    return LogList(
        _listed(each for each in _job_logs(jobs, record.id).files() if each.process == slot_process(slot.subtask))
    )


def _slot_file(jobs: Jobs, kind: str | None, call: ApiCall) -> Response:
    record, slot = find_slot(jobs, call)
    process = slot_process(slot.subtask)
    wanted = f"{process}.{kind}" if kind is not None else call.path["filename"]
    logs = _job_logs(jobs, record.id)
    if process_of(wanted) != process:
        raise _missing(logs, wanted)
    return _text(logs, wanted, call)


def _of_job(jobs: Jobs, call: ApiCall) -> JobLogList:
    logs = _job_logs(jobs, call.job_id)
    return JobLogList(logs.record.logs, _listed(logs.files()))


def _job_file(jobs: Jobs, call: ApiCall) -> Response:
    return _text(_job_logs(jobs, call.job_id), call.path["filename"], call)


def _lines(jobs: Jobs, call: ApiCall) -> LogLines:
    logs, name = _job_logs(jobs, call.job_id), call.path["filename"]
    for source in logs.sources(name):
        with suppress(OSError):
            part = source.tail(name, call.query["cursor"], call.query["limit"])
            return LogLines(part.text, part.cursor, part.has_gap)
    if logs.is_expected(name):
        return LogLines("", "", has_gap=False)
    raise _missing(logs, name)


def _driver_url(jobs: Jobs, call: ApiCall) -> LogUrl:
    return LogUrl(f"/jobs/{jobs.record(call.job_id).id}/logs/{DRIVER}.{LOG}")


def _slot_url(jobs: Jobs, call: ApiCall) -> LogUrl:
    _, slot = find_slot(jobs, call)
    return LogUrl(f"/jobs/{quote(call.job_id)}/logs/{slot_process(slot.subtask)}.{LOG}")


def routes(jobs: Jobs) -> list[Endpoint]:
    get = Reads(jobs, "", "logs")
    limit = Annotated[int, Meta(ge=1, le=MOST_BYTES)]
    cursor = Query("cursor", description="The cursor of the last answer; none: the last lines of the log.")
    most = Query("limit", limit, "At most this many bytes.", default=_USUAL_BYTES)
    manager, job = "/taskmanagers/{taskmanagerid}", "/jobs/{jobid}"
    return [
        get("/jobmanager/logs", _of_driver, "The driver's log files", LogList),
        _file("/jobmanager/log", partial(_driver_file, jobs, f"{DRIVER}.{LOG}"), "The driver's log"),
        _file("/jobmanager/stdout", partial(_driver_file, jobs, f"{DRIVER}.{STDOUT}"), "What the driver printed"),
        _file("/jobmanager/logs/{filename}", partial(_driver_file, jobs, None), "A log file of the driver"),
        get(f"{manager}/logs", _of_slot, "A slot's log files", LogList),
        _file(f"{manager}/log", partial(_slot_file, jobs, LOG), "A slot's log"),
        _file(f"{manager}/stdout", partial(_slot_file, jobs, STDOUT), "What functions printed in a slot"),
        _file(f"{manager}/logs/{{filename}}", partial(_slot_file, jobs, None), "A log file of a slot"),
        get(f"{job}/logs", _of_job, "The job's log files", JobLogList),
        _file(f"{job}/logs/{{filename}}", partial(_job_file, jobs), "A log file of the job"),
        get(
            f"{job}/logs/{{filename}}/lines",
            _lines,
            "The last lines of a log, or those that follow",
            LogLines,
            cursor,
            most,
        ),
        get(f"{job}/jobmanager/log-url", _driver_url, "Where the driver's log is served", LogUrl),
        get(f"{job}/taskmanagers/{{taskmanagerid}}/log-url", _slot_url, "Where a slot's log is served", LogUrl),
    ]


def _file(path: str, handler: Any, summary: str) -> Endpoint:
    query = (_TAIL, _OFFSET, _LIMIT)
    return Endpoint("GET", path, handler, summary, query=query, errors=(404,), tag="logs", media_type="text/plain")
