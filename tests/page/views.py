"""Every view of the page. One line here has a view tested and photographed at each width, in light and dark.

A view is a path behind `#/` on one of the servers of `conftest.py`: `HISTORY` is a job with 200 checkpoints behind it,
`RUNNING` a job that really runs, `RULES` one with broadcast state and timers, `CLICKS` one with windows, `ENDED` one
that was cancelled, `FAILING` one that waits for its restart, each with its own id in the path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.history import JOB_ID
from tests.page.rules_job import UID as RULES_UID
from tests.support.windowed_jobs import UID as WINDOWS_UID

from checkdam.testing.local_job import JOB_ID as RUNNING_ID

JOB = str(RUNNING_ID)
ENDED_ID = "cd" * 16
FAILING_ID = "ef" * 16


class Host(StrEnum):
    """The server a view is looked at on."""

    RECORDS = "records"
    LIVE = "live"
    RULES = "rules"
    CLICKS = "clicks"


@dataclass(frozen=True)
class View:
    """One view: the name of its screenshots, its path, and the buttons that are pressed once it is there."""

    name: str
    host: Host
    path: tuple[str, ...] = ()
    press: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def _of(host: Host, job: str, name: str, path: str = "", press: str = "") -> View:
    parts = tuple(part for part in path.split("/") if part)
    return View(name, host, ("jobs", job, *parts), (press,) if press else ())


def history(name: str, path: str = "", press: str = "") -> View:
    return _of(Host.RECORDS, JOB_ID, name, path, press)


def running(name: str, path: str = "", press: str = "") -> View:
    return _of(Host.LIVE, JOB, name, path, press)


def ended(name: str, path: str = "", press: str = "") -> View:
    return _of(Host.RECORDS, ENDED_ID, name, path, press)


def with_rules(name: str, path: str = "") -> View:
    return _of(Host.RULES, JOB, name, path)


def with_windows(name: str, path: str = "") -> View:
    return _of(Host.CLICKS, JOB, name, path)


VIEWS = [
    View("jobs", Host.RECORDS),
    View("jobs-running", Host.LIVE),
    View("slots", Host.RECORDS, ("slots",)),
    View("slots-running", Host.LIVE, ("slots",)),
    View("nothing", Host.RECORDS, ("nowhere",)),
    history("overview"),
    history("overview-subtasks", f"overview/{5:032x}"),
    history("exceptions", "exceptions"),
    history("checkpoints", "checkpoints"),
    history("checkpoints-history", "checkpoints/history"),
    history("checkpoints-summary", "checkpoints/summary"),
    history("checkpoints-configuration", "checkpoints/configuration"),
    history("checkpoint", "checkpoints/199"),
    history("checkpoint-failed", "checkpoints/187"),
    history("savepoints", "savepoints"),
    history("configuration", "configuration"),
    history("logs-none", "logs"),
    View("failing-overview", Host.RECORDS, ("jobs", FAILING_ID)),
    ended("ended-overview"),
    ended("ended-exceptions", "exceptions"),
    ended("ended-logs", "logs/slot-0"),
    running("running-overview"),
    running("running-checkpoint", "checkpoints/6"),
    running("running-state", "state"),
    running("running-state-live", "state/live/counts/_op_state"),
    running("running-state-snapshot", "state/chk-6/counts/_op_state"),
    running("running-state-compare", "state/compare/chk-5/chk-6"),
    running("running-savepoints", "savepoints"),
    with_rules("rules-overview"),
    with_rules("rules-state", "state"),
    with_rules("rules-broadcast-live", f"state/live/{RULES_UID}/rules/operator"),
    with_rules("rules-broadcast-snapshot", f"state/chk-3/{RULES_UID}/rules/operator"),
    with_rules("rules-list-live", "state/live/recent/recent payments/operator"),
    with_rules("rules-timers-live", f"state/live/{RULES_UID}/timers/timers"),
    with_rules("rules-timers-snapshot", f"state/chk-3/{RULES_UID}/timers/timers"),
    with_windows("windows-state", "state"),
    with_windows("windows-contents-live", f"state/live/{WINDOWS_UID}/window-contents"),
    with_windows("windows-timers-live", f"state/live/{WINDOWS_UID}/timers/timers"),
    running("running-logs", "logs"),
    running("running-logs-printed", "logs/slot-1/out"),
    running("running-logs-empty", "logs/slot-0/out"),
    running("running-configuration", "configuration"),
    running("ask-checkpoint", press="Checkpoint"),
    running("ask-savepoint", press="Savepoint"),
    running("ask-rescale", press="Rescale"),
    running("ask-stop", press="Stop with savepoint"),
    running("ask-cancel", press="Cancel"),
]
