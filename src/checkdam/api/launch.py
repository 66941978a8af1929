"""What the command line tells a program before it runs it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from checkdam.config import Configuration
from checkdam.runtime.events import JobListener, PrintingListener
from checkdam.runtime.master import JobResult

DEFAULT_FILE = Path("checkdam.yaml")


@dataclass
class Launch:
    """How jobs of this process are started. A program run by itself gets the defaults."""

    configuration: Configuration
    restore_path: str | None = None
    resume_latest: bool = False
    allow_non_restored_state: bool = False
    listener: JobListener = field(default_factory=PrintingListener)
    results: list[JobResult] = field(default_factory=list)


_current: ContextVar[Launch | None] = ContextVar("checkdam_launch", default=None)


def current_launch() -> Launch:
    return _current.get() or Launch(Configuration.load(DEFAULT_FILE if DEFAULT_FILE.exists() else None))


def set_launch(launch: Launch | None) -> None:
    _current.set(launch)
