"""The serving process and the slots of its jobs: in Flink's terms, the job manager and its task managers."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

import msgspec

import checkdam
from checkdam.clock import milliseconds_in
from checkdam.config import WEB_REFRESH_INTERVAL, Configuration
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_records import NEVER, JobRecord, SlotRecord
from checkdam.runtime.monitor.masking import masked
from checkdam.server.app.endpoint import ApiCall, Endpoint, Query, Reads
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.job_list import jobs_elsewhere
from checkdam.server.flink_api.statistics import now_ms
from checkdam.server.flink_api.vertices import slot_id

FLINK_VERSION = "2.3.0"
"""The Flink version whose REST API this server implements; clients choose their requests by it."""
_VERSION = str(checkdam.__version__)
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ClusterOverview(msgspec.Struct, frozen=True, rename="kebab"):
    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    checkdam_version: str


class Features(msgspec.Struct, frozen=True, rename="kebab"):
    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool


class DashboardConfiguration(msgspec.Struct, frozen=True, rename="kebab"):
    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features
    checkdam_version: str


class ConfigEntry(msgspec.Struct, frozen=True):
    key: str
    value: str


class ThreadInfo(msgspec.Struct, frozen=True, rename="camel"):
    thread_name: str
    stringified_thread_info: str


class ThreadDump(msgspec.Struct, frozen=True, rename="camel"):
    thread_infos: list[ThreadInfo]


def _overview(jobs: Jobs, _: ApiCall) -> ClusterOverview:
    elsewhere = jobs_elsewhere(jobs)
    statuses = [record.status for record in jobs.records() if record.id not in elsewhere]
    statuses += [each.state for each in elsewhere.values()]
    slots = len(_slots(jobs, _).taskmanagers)
    return ClusterOverview(
        taskmanagers=slots,
        slots_total=slots,
        slots_available=0,  # slots are created and removed with their job
        jobs_running=sum(not status.has_ended for status in statuses),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=FLINK_VERSION,
        flink_commit="checkdam",
        checkdam_version=_VERSION,
    )


def _config(configuration: Configuration, _: ApiCall) -> DashboardConfiguration:
    zone = time.localtime()
    return DashboardConfiguration(
        refresh_interval=milliseconds_in(configuration.get(WEB_REFRESH_INTERVAL)),
        timezone_name=zone.tm_zone,
        timezone_offset=zone.tm_gmtoff * 1000,
        flink_version=FLINK_VERSION,
        flink_revision=f"checkdam {_VERSION}",
        features=Features(web_submit=False, web_cancel=True, web_rescale=True, web_history=False),
        checkdam_version=_VERSION,
    )


def _settings(configuration: Configuration, _: ApiCall) -> list[ConfigEntry]:
    """Return every explicit setting; values that look like secrets are masked."""
    given = {key: setting.value for key, setting in configuration.given().items()}
    return [ConfigEntry(key, value) for key, value in masked(given).items()]


def _thread_dump(_: Configuration, call: ApiCall) -> ThreadDump:
    names = {thread.ident: thread for thread in threading.enumerate()}
    infos = []
    for ident, frame in sys._current_frames().items():
        thread = names.get(ident)
        name = thread.name if thread is not None else str(ident)
        kind = " daemon" if thread is not None and thread.daemon else ""
        frames = "" if call.query["mode"] == "LITE" else "".join(traceback.format_stack(frame))
        infos.append(ThreadInfo(name, f'"{name}"{kind} id={ident}\n{frames}'))
    return ThreadDump(sorted(infos, key=lambda info: info.thread_name))


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """Memory in megabytes."""

    cpu_cores: float
    task_heap_memory: int


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """Sizes in bytes of the serving machine; -1 for a slot on another machine."""

    cpu_cores: int
    physical_memory: int
    free_memory: int


class TaskManager(msgspec.Struct, frozen=True, rename="camel"):
    """From `pid` on the fields are ours."""

    id: str
    path: str
    data_port: int
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: Resource
    hardware: Hardware
    pid: int
    subtask: int
    job_id: str
    memory: int


class TaskManagers(msgspec.Struct, frozen=True):
    taskmanagers: list[TaskManager]


class AllocatedSlot(msgspec.Struct, frozen=True, rename="camel"):
    job_id: str
    resource: Resource
    assigned_tasks: int


class TaskManagerMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """The resident memory of the slot's process."""

    heap_used: int


class TaskManagerDetails(TaskManager, frozen=True, rename="camel"):
    allocated_slots: list[AllocatedSlot]
    metrics: TaskManagerMetrics


def live_slots(jobs: Jobs) -> list[tuple[JobRecord, SlotRecord]]:
    """Return the slots of the jobs running in this process."""
    return [(record, slot) for record in jobs.running_records() for slot in record.slots]


def find_slot(jobs: Jobs, call: ApiCall) -> tuple[JobRecord, SlotRecord]:
    """Return the slot and its job. Raise RestError 404."""
    wanted = call.path["taskmanagerid"]
    for record, slot in live_slots(jobs):
        if slot_id(slot) == wanted:
            return record, slot
    raise RestError(404, f"TaskExecutor {wanted} is not registered.")


def _facts(record: JobRecord, slot: SlotRecord) -> dict[str, Any]:
    host, _, port = slot.location.rpartition(":")
    return {
        "id": slot_id(slot),
        "path": slot.location,
        "data_port": int(port) if host and port.isdigit() else -1,
        "time_since_last_heartbeat": now_ms(),
        "slots_number": 1,
        "free_slots": 0,
        "assigned_tasks": sum(slot.subtask < operator.parallelism for operator in record.operators),
        "total_resource": Resource(1.0, max(0, slot.memory) >> 20),
        "hardware": _hardware(slot),
        "pid": slot.pid,
        "subtask": slot.subtask,
        "job_id": record.id,
        "memory": slot.memory,
    }


def _hardware(slot: SlotRecord) -> Hardware:
    if slot.host != os.uname().nodename:
        return Hardware(NEVER, NEVER, NEVER)
    return Hardware(os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * _PAGE, os.sysconf("SC_AVPHYS_PAGES") * _PAGE)


def _slots(jobs: Jobs, _: ApiCall) -> TaskManagers:
    """Return the slots of this process; a standing server, which has none, returns those of all jobs it shows."""
    return TaskManagers([TaskManager(**_facts(record, slot)) for record, slot in live_slots(jobs)] + _elsewhere(jobs))


def _elsewhere(jobs: Jobs) -> list[TaskManager]:
    found = []
    for _, slot in jobs.slots_elsewhere():
        with suppress(msgspec.ValidationError):  # of another version
            found.append(msgspec.convert(slot, TaskManager))
    return found


def _slot(jobs: Jobs, call: ApiCall) -> TaskManagerDetails:
    record, slot = find_slot(jobs, call)
    facts = _facts(record, slot)
    return TaskManagerDetails(
        **facts,
        allocated_slots=[AllocatedSlot(record.id, facts["total_resource"], facts["assigned_tasks"])],
        metrics=TaskManagerMetrics(max(0, slot.memory)),
    )


def routes(jobs: Jobs, configuration: Configuration) -> list[Endpoint]:
    of_jobs, of_settings = Reads(jobs, "", "cluster"), Reads(configuration, "", "cluster")
    mode = Query("mode", description="LITE: names only", default="FULL", choices=("LITE", "FULL"))
    return [
        of_jobs("/overview", _overview, "Numbers of slots and jobs", ClusterOverview),
        of_settings("/config", _config, "Settings of the web page", DashboardConfiguration),
        of_settings("/jobmanager/config", _settings, "The settings", list[ConfigEntry]),
        of_settings("/jobmanager/thread-dump", _thread_dump, "Stack traces of the driver's threads", ThreadDump, mode),
        of_jobs("/taskmanagers", _slots, "The slots of the running jobs", TaskManagers),
        of_jobs("/taskmanagers/{taskmanagerid}", _slot, "One slot", TaskManagerDetails),
    ]
