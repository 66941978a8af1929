"""The process that serves: what it is, how it is configured, what its threads do. In Flink's words, the job manager."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

import checkdam
from checkdam.config import WEB_REFRESH_INTERVAL, Configuration
from checkdam.runtime.monitor.job_records import JobStatus
from checkdam.runtime.monitor.masking import masked
from checkdam.server.app.endpoint import Call, Endpoint, Query
from checkdam.server.catalog.known_jobs import Jobs

FLINK_VERSION = "2.3.0"
"""The version whose wire this server speaks; clients choose by it what they may ask."""


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


def _overview(jobs: Jobs, _: Call) -> ClusterOverview:
    records = jobs.records()
    slots = sum(len(record.slots) for record in records if not record.status.has_ended and jobs.running(record.id))
    statuses = [record.status for record in records]
    return ClusterOverview(
        taskmanagers=slots,
        slots_total=slots,
        slots_available=0,  # a slot lives and dies with its job
        jobs_running=sum(not status.has_ended for status in statuses),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=FLINK_VERSION,
        flink_commit="checkdam",
        checkdam_version=version(),
    )


def version() -> str:
    return str(checkdam.__version__)


def _config(configuration: Configuration, _: Call) -> DashboardConfiguration:
    zone = time.localtime()
    return DashboardConfiguration(
        refresh_interval=int(configuration.get(WEB_REFRESH_INTERVAL).total_seconds() * 1000),
        timezone_name=zone.tm_zone,
        timezone_offset=zone.tm_gmtoff * 1000,
        flink_version=FLINK_VERSION,
        flink_revision=f"checkdam {version()}",
        features=Features(web_submit=False, web_cancel=True, web_rescale=True, web_history=False),
        checkdam_version=version(),
    )


def settings(configuration: Configuration) -> list[ConfigEntry]:
    """Every setting somebody made; what looks like a secret is not shown."""
    made = {key: setting.value for key, setting in configuration.given().items()}
    return [ConfigEntry(key, value) for key, value in masked(made).items()]


def _settings(configuration: Configuration, _: Call) -> list[ConfigEntry]:
    return settings(configuration)


def _thread_dump(call: Call) -> ThreadDump:
    names = {thread.ident: thread for thread in threading.enumerate()}
    infos = []
    for ident, frame in sys._current_frames().items():
        thread = names.get(ident)
        name = thread.name if thread is not None else str(ident)
        kind = " daemon" if thread is not None and thread.daemon else ""
        frames = "" if call.query["mode"] == "LITE" else "".join(traceback.format_stack(frame))
        infos.append(ThreadInfo(name, f'"{name}"{kind} id={ident}\n{frames}'))
    return ThreadDump(sorted(infos, key=lambda info: info.thread_name))


def routes(jobs: Jobs, configuration: Configuration) -> list[Endpoint]:
    def get(path: str, handler: Callable[[Call], Any], summary: str, response: Any, **more: Any) -> Endpoint:
        return Endpoint("GET", path, handler, summary, response=response, tag="cluster", **more)

    dump = Query("mode", description="LITE: names only", default="FULL", choices=("LITE", "FULL"))
    return [
        get("/overview", partial(_overview, jobs), "Slots and jobs in figures", ClusterOverview),
        get("/config", partial(_config, configuration), "What a page needs to know", DashboardConfiguration),
        get("/jobmanager/config", partial(_settings, configuration), "The settings", list[ConfigEntry]),
        get("/jobmanager/thread-dump", _thread_dump, "What the driver's threads do", ThreadDump, query=(dump,)),
    ]
