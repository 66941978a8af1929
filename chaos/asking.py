"""Somebody who operates the job under fire: asks for savepoints, rescalings and stops, and may pull the plug."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from checkdam.errors import CheckdamError
from checkdam.ids import JobId
from checkdam.runtime.control import JobControl, RunningJob, SavepointFormat

STOPPED = 3
"""The exit code of a job that was stopped with a savepoint before its input was used up."""


class Asker:
    """The host of the job, which asks for something once: "ask-VERB:N" after N epochs of this process.

    With ":SECONDS" the driver is killed that much later. Verbs: checkpoint, savepoint, stop, drain, rescale-N.
    """

    def __init__(self, moment: str | None, savepoints: Path) -> None:
        kind, number, delay = [*(moment or "never:0").split(":"), ""][:3]
        self._verb = kind.removeprefix("ask-") if kind.startswith("ask-") else None
        self._after = int(number)
        self._kill_after = float(delay) if delay else None
        self._savepoints = str(savepoints)
        self._control: JobControl | None = None
        self._epochs = 0
        self.has_stopped = False

    def job_started(self, job: RunningJob) -> None:
        self._control = job.control

    def job_ended(self, job_id: JobId) -> None:
        self._control = None

    def epoch_ended(self) -> None:
        self._epochs += 1
        control = self._control
        if control is None or self._verb is None or self._epochs != self._after:
            return
        answer = self._ask(control, self._verb)
        if self._verb in ("stop", "drain"):
            answer.add_done_callback(self._note_stop)
        if self._kill_after is not None:
            threading.Timer(self._kill_after, os.kill, [os.getpid(), signal.SIGKILL]).start()

    def _ask(self, control: JobControl, verb: str) -> Future[Any]:
        if verb == "checkpoint":
            return control.trigger_checkpoint()
        if verb == "savepoint":
            return control.trigger_savepoint(self._savepoints, SavepointFormat.CANONICAL)
        if verb in ("stop", "drain"):
            return control.stop_with_savepoint(self._savepoints, SavepointFormat.CANONICAL, drain=verb == "drain")
        return control.rescale(int(verb.removeprefix("rescale-")))

    def _note_stop(self, answer: Future[str]) -> None:
        failure = answer.exception()
        if failure is not None and not isinstance(failure, CheckdamError):
            raise failure
        self.has_stopped = failure is None
