"""Slots as Flink's task managers: each is a process of its own, and holds one slot."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from checkdam.runtime.monitor.job_records import NEVER, JobRecord, SlotRecord
from checkdam.server.app.endpoint import Call, Endpoint
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api.statistics import now_ms
from checkdam.server.flink_api.vertices import slot_id

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """Memory in megabytes."""

    cpu_cores: float
    task_heap_memory: int


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """In bytes, of the machine that serves; -1 for a slot elsewhere."""

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
        "time_since_last_heartbeat": now_ms(),
        "slots_number": 1,
        "free_slots": 0,
        "assigned_tasks": _tasks(record, slot),
        "total_resource": resource,
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
        metrics=TaskManagerMetrics(memory),
    )


def routes(jobs: Jobs) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Jobs, Call], Any], summary: str, response: Any, **more: Any) -> Endpoint:
        return Endpoint(
            "GET", "/taskmanagers" + path, partial(handler, jobs), summary, response=response, tag="slots", **more
        )

    one = "/{taskmanagerid}"
    return [
        get("", _all, "The slots of the running jobs", TaskManagers),
        get(one, _one, "One slot", TaskManagerDetails, errors=(404,)),
    ]
