"""Slots as Flink's task managers: each is a process of its own, and holds one slot."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from checkdam.runtime.monitor.job_records import NEVER, JobRecord, SlotRecord
from checkdam.server.app.endpoint import Call, Endpoint, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.cluster import LogList, ThreadDump
from checkdam.server.flink_api.statistics import now_ms
from checkdam.server.flink_api.vertices import slot_id

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """In megabytes; what is not measured is 0."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """In bytes, of the machine that serves; -1 for a slot elsewhere."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """A slot's memory is not divided in advance: every share is null, as Flink writes what is not set."""

    framework_heap: int | None = None
    task_heap: int | None = None
    framework_off_heap: int | None = None
    task_off_heap: int | None = None
    network_memory: int | None = None
    managed_memory: int | None = None
    jvm_metaspace: int | None = None
    jvm_overhead: int | None = None
    total_flink_memory: int | None = None
    total_process_memory: int | None = None


class TaskManager(msgspec.Struct, frozen=True, rename="camel"):
    """From `pid` on the fields are ours."""

    id: str
    path: str
    data_port: int
    jmx_port: int
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: Resource
    free_resource: Resource
    hardware: Hardware
    memory_configuration: MemoryConfiguration
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


class GarbageCollector(msgspec.Struct, frozen=True):
    name: str
    count: int
    time: int


class TaskManagerMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """`heap_used` is the process's resident memory; the rest of a JVM's figures are 0."""

    heap_used: int
    heap_committed: int
    heap_max: int = -1
    non_heap_used: int = 0
    non_heap_committed: int = 0
    non_heap_max: int = -1
    direct_count: int = 0
    direct_used: int = 0
    direct_max: int = 0
    mapped_count: int = 0
    mapped_used: int = 0
    mapped_max: int = 0
    netty_shuffle_memory_segments_available: int = 0
    netty_shuffle_memory_segments_used: int = 0
    netty_shuffle_memory_segments_total: int = 0
    netty_shuffle_memory_available: int = 0
    netty_shuffle_memory_used: int = 0
    netty_shuffle_memory_total: int = 0
    garbage_collectors: list[GarbageCollector] = []


class TaskManagerDetails(TaskManager, frozen=True, rename="camel"):
    allocated_slots: list[AllocatedSlot]
    metrics: TaskManagerMetrics


def live_slots(jobs: Jobs) -> list[tuple[JobRecord, SlotRecord]]:
    """Of the jobs that run in this process."""
    return [(record, slot) for record in jobs.running_records() for slot in record.slots]


def find_slot(jobs: Jobs, call: Call) -> tuple[JobRecord, SlotRecord]:
    """Raises RestError 404."""
    wanted = call.path["taskmanagerid"]
    for record, slot in live_slots(jobs):
        if slot_id(slot) == wanted:
            return record, slot
    raise RestError(404, f"TaskExecutor {wanted} is not registered.")


def _facts(record: JobRecord, slot: SlotRecord) -> dict[str, Any]:
    memory = max(0, slot.memory)
    host, _, port = slot.location.rpartition(":")
    resource = Resource(1.0, memory >> 20)
    return {
        "id": slot_id(slot),
        "path": slot.location,
        "data_port": int(port) if host and port.isdigit() else -1,
        "jmx_port": -1,
        "time_since_last_heartbeat": now_ms(),
        "slots_number": 1,
        "free_slots": 0,
        "assigned_tasks": _tasks(record, slot),
        "total_resource": resource,
        "free_resource": Resource(0.0, 0),
        "hardware": _hardware(slot),
        "memory_configuration": MemoryConfiguration(),
        "pid": slot.pid,
        "subtask": slot.subtask,
        "job_id": record.id,
        "memory": slot.memory,
    }


def _hardware(slot: SlotRecord) -> Hardware:
    if slot.host != os.uname().nodename:
        return Hardware(NEVER, NEVER, NEVER, 0)
    return Hardware(os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * _PAGE, os.sysconf("SC_AVPHYS_PAGES") * _PAGE, 0)


def _tasks(record: JobRecord, slot: SlotRecord) -> int:
    return sum(slot.subtask < operator.parallelism for operator in record.operators)


def _all(jobs: Jobs, _: Call) -> TaskManagers:
    return TaskManagers([TaskManager(**_facts(record, slot)) for record, slot in live_slots(jobs)])


def _one(jobs: Jobs, call: Call) -> TaskManagerDetails:
    record, slot = find_slot(jobs, call)
    memory = max(0, slot.memory)
    facts = _facts(record, slot)
    return TaskManagerDetails(
        **facts,
        allocated_slots=[AllocatedSlot(record.id, facts["total_resource"], facts["assigned_tasks"])],
        metrics=TaskManagerMetrics(memory, memory),
    )


def _logs(jobs: Jobs, call: Call) -> LogList:
    find_slot(jobs, call)
    return LogList([])


def _thread_dump(jobs: Jobs, call: Call) -> ThreadDump:
    find_slot(jobs, call)
    raise RestError(404, "The threads of a slot are not shown here: it is a process of its own.")


def routes(jobs: Jobs) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Jobs, Call], Any], summary: str, response: Any, **more: Any) -> Endpoint:
        return Endpoint(
            "GET", "/taskmanagers" + path, partial(handler, jobs), summary, response=response, tag="slots", **more
        )

    one = "/{taskmanagerid}"
    return [
        get("", _all, "The slots of the running jobs", TaskManagers),
        get(one, _one, "One slot", TaskManagerDetails, errors=(404,)),
        get(one + "/logs", _logs, "Log files, of which there are none", LogList, errors=(404,)),
        get(one + "/thread-dump", _thread_dump, "Not available", ThreadDump, query=(Query("mode"),), errors=(404,)),
    ]
