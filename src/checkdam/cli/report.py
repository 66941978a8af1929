"""Output of a running job: plain lines in a log, a live panel on a terminal, and `print()` output on stdout."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from checkdam.checkpoint.settings import JobEnd
from checkdam.cli import number_format
from checkdam.cli.error_messages import rendered, say
from checkdam.clock import Clock, SystemClock
from checkdam.connectors.contract import Withdrawn
from checkdam.errors import CheckdamError, FencedError
from checkdam.ids import CheckpointId, Epoch, JobId, OperatorUid
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import (
    CheckpointStats,
    EpochStats,
    JobListener,
    told_dropped,
    told_missing,
    told_skipped,
    told_withdrawn,
    told_without_effect,
)
from checkdam.runtime.monitor.job_records import SlotRecord
from checkdam.runtime.monitor.resume_point import ResumePoint
from checkdam.runtime.restart import Restart
from checkdam.state.state_count import StateCount

_RATE_WINDOW_SECONDS = 10.0
_PROGRESS_SECONDS = 2.0
_WARNING = "WARNING: "


class StatusReporter(JobListener):
    """Reports a job's events in lines; standard output is left to `print()` sinks."""

    def __init__(
        self,
        report: Callable[[str], None],
        *,
        resume: Callable[[str | None, int | None], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._monotonic = monotonic
        self._url: str | None = None
        self._work: str | None = None  # long work in progress
        self._progress_reported_at = 0.0
        # The command that resumes from a checkpoint (None: the same job, from its newest), at a parallelism.
        self._resume = resume
        self._stdout_lock = threading.Lock()
        self._stdout_is_open = True
        self._skipped: set[str] = set()
        self._restored: str | None = None  # printed once all slots have their state
        self._resume_point = ResumePoint()
        self._has_checkpoints_in_memory = False
        self._unknown: CheckdamError | None = None  # why the remaining checkpoint is unknown
        self._is_replaced = False  # another driver has taken over the job
        self._job: JobId | None = None
        self.failed_job: JobId | None = None
        self.started_any = False

    def serving(self, url: str, for_others: Sequence[str] = ()) -> None:
        """Print, once, the URLs at which the jobs of this process can be watched and controlled."""
        if url != self._url:
            self._url = url
            self._report(f"web page and REST: {', '.join([url, *for_others])}")

    def job_started(self, job_id: JobId, name: str, slots: int) -> None:
        self.started_any = True
        self._job, self.failed_job = job_id, None
        self._unknown = None
        self._has_checkpoints_in_memory = False
        self._resume_point = ResumePoint()
        self._report(f'job "{name}" started: id {job_id}, {number_format.counted(slots, "slot")}')

    def settings_without_effect(self, keys: Sequence[str], reason: str) -> None:
        self._report(f"note: {told_without_effect(keys, reason)}")

    def taken_over(self, owner: str) -> None:
        self._report(f"WARNING: job taken over from {owner}; if that process still runs, it stops by itself")

    def progressed(self, what: str | None) -> None:
        """Report when work begins ("savepoint 12: 0 of 2 slots"), and its progress from time to time."""
        work = None if what is None else what.partition(":")[0]
        now = self._monotonic()
        if what is not None and (work != self._work or now - self._progress_reported_at >= _PROGRESS_SECONDS):
            self._report(what)
            self._progress_reported_at = now
        self._work = work
        if what is None:
            self._report_restored()

    def nothing_to_resume(self, reason: CheckdamError) -> None:
        self._report(f"{reason.message}: starting anew")

    def restored(self, path: str, epoch: Epoch) -> None:
        """Remember the checkpoint; it is reported once `progressed` shows that the state has been loaded."""
        self._restored = f"restored {path}, continuing after epoch {epoch}"

    def _report_restored(self) -> None:
        if self._restored is not None:
            self._report(self._restored)
            self._restored = None

    def checkpoint_skipped(self, path: str, reason: CheckdamError) -> None:
        if path not in self._skipped:  # every search for the newest usable checkpoint finds it again
            self._skipped.add(path)
            self._report(f"WARNING: {told_skipped(path, reason)}")

    def checkpoint_dropped(self, path: str) -> None:
        self._report(f"WARNING: {told_dropped(path)}")

    def output_withdrawn(self, uid: OperatorUid, withdrawn: Withdrawn) -> None:
        self._report(f"WARNING: {told_withdrawn(uid, withdrawn)}")

    def output_missing(self, path: str, files: Sequence[str]) -> None:
        self._report(f"WARNING: {told_missing(path, files)}")

    def printed(self, lines: list[str]) -> None:
        with self._stdout_lock:
            if not self._stdout_is_open:
                return
            try:
                print("\n".join(lines), flush=True)  # noqa: T201  the purpose of this sink
            except BrokenPipeError:
                # The reader has gone (`| head`); the job continues for its state and other sinks.
                self._stdout_is_open = False
                with open(os.devnull, "w", encoding="utf-8") as nowhere:
                    os.dup2(nowhere.fileno(), sys.stdout.fileno())  # buffered output must go somewhere at exit
                self._report("WARNING: standard output is closed; the job continues without printing")

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        kind = "savepoint" if stats.kind.is_savepoint else "checkpoint"
        self._resume_point.checkpoint_completed(stats)
        if not stats.kind.is_savepoint:
            self._has_checkpoints_in_memory = stats.path.startswith("memory:")
        self._report(
            f"{kind} {stats.checkpoint_id} completed: epoch {stats.epoch}, "
            f"{number_format.size(stats.state_bytes)} ({number_format.size(stats.new_bytes)} new), "
            f"{number_format.duration(stats.seconds)}, {stats.path}"
        )

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        self._report(f"WARNING: checkpoint {checkpoint_id} failed: {reason}")

    def drained(self, savepoint: str) -> None:
        self._resume_point.drained()

    def rescaled(self, parallelism: int, failure: CheckdamError | None) -> None:
        self._resume_point.rescaled(parallelism, failure)
        if failure is None:
            self._report(f"rescaled: running with parallelism {parallelism}")
        else:
            self._report(f"WARNING: not rescaled to parallelism {parallelism}: {failure.message}")

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        self._restored = None
        self._resume_point.restarting()
        delay = number_format.duration(restart.delay.total_seconds())
        self._report(f"WARNING: {failure.message}; restarting in {delay} ({restart.which})")

    def last_checkpoint_missed(self, reason: str) -> None:
        self._report(f"WARNING: no last checkpoint was taken: {reason}")

    def checkpoints_deleted(self, checkpoint_ids: Sequence[CheckpointId], place: str, retention: str) -> None:
        self._report(
            f"{number_format.counted(len(checkpoint_ids), 'checkpoint')} in {place} deleted (retention {retention})"
        )

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        if end is JobEnd.FAILED:
            self.failed_job = self._job
        if end is JobEnd.SUSPENDED:
            self._report_suspended(last_checkpoint)
            return
        self._report(f"job {end.value}")
        savepoint = self._resume_point.savepoint(end)
        path = savepoint or last_checkpoint
        self._restored = None
        if savepoint is not None and self._resume_point.is_drained:
            self._report(f"event time has ended: the job should not be resumed from its savepoint {savepoint}")
        elif path is not None:
            self._report(f"resume with: {self._resume(path, self._resume_point.parallelism)}")

    def checkpoints_unknown(self, reason: CheckdamError) -> None:
        self._unknown = reason

    def failed(self, failure: CheckdamError) -> None:
        self._is_replaced = isinstance(failure, FencedError)

    def _report_suspended(self, last_checkpoint: str | None) -> None:
        if self._is_replaced:
            self._report("job suspended here: another driver runs it")
            return
        if self._unknown is not None:
            self._report(f"job suspended; its checkpoints could not be listed: {self._unknown.message}")
            self._report(f"when the storage answers, resume with: {self._resume(None, self._resume_point.parallelism)}")
            return
        if last_checkpoint is None:
            why = "no checkpoint was completed"
            if self._has_checkpoints_in_memory:
                why = "checkpoints in the driver's memory are lost with it"
            self._report(f"job suspended: {why}, so there is nothing to resume from")
            return
        self._report(f"job suspended at checkpoint {last_checkpoint.rpartition('/chk-')[2]}")
        self._report(f"resume with: {self._resume(None, self._resume_point.parallelism)}")


class LogReporter(StatusReporter):
    """Writes one line per event to the job's log file, a failure with the stack of the user's code."""

    def __init__(self, write: Callable[[int, str], None], *, resume: Callable[[str | None, int | None], str]) -> None:
        self._write = write
        super().__init__(self._log, resume=resume)

    def _log(self, line: str) -> None:
        level = logging.WARNING if line.startswith(_WARNING) else logging.INFO
        self._write(level, line.removeprefix(_WARNING))

    def printed(self, lines: list[str]) -> None:
        """Leave these to the reporter that owns standard output, and so to the file of what is printed."""

    def status_changed(self, status: JobStatus) -> None:
        self._write(logging.INFO, f"status {status}")

    def slots_started(self, slots: Sequence[SlotRecord]) -> None:
        for slot in slots:
            self._write(logging.INFO, f"slot {slot.subtask} runs in process {slot.pid} on {slot.host}")

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        self._write(logging.ERROR, rendered(failure))
        super().restarting(failure, restart)

    def failed(self, failure: CheckdamError) -> None:
        super().failed(failure)
        self._write(logging.ERROR, rendered(failure))


class PlainReporter(StatusReporter):
    """Prints one line per event, each with its time, for logs and pipes."""

    def __init__(self, *, resume: Callable[[str | None, int | None], str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        super().__init__(self._say, resume=resume, monotonic=self._clock.monotonic)

    def _say(self, line: str) -> None:
        say(f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ} {line}")


class LiveReporter(StatusReporter):
    """Shows a panel at the bottom of the terminal; rare events scroll by above it."""

    def __init__(
        self,
        console: Console,
        *,
        resume: Callable[[str | None, int | None], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._scroll, resume=resume, monotonic=monotonic)
        self._console = console
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._name = ""
        self._epoch: Epoch | None = None
        self._held = StateCount()
        self._recent: deque[tuple[float, int]] = deque()
        self._checkpoint: tuple[CheckpointStats, float] | None = None
        self._failed_checkpoints = 0
        self._restarts = 0
        self._status = "starting"
        self._progress: str | None = None

    def _scroll(self, line: str) -> None:
        style = "yellow" if line.startswith("WARNING") else "dim" if line.startswith("resume") else ""
        self._console.print(Text(line, style=style), soft_wrap=True)

    def job_started(self, job_id: JobId, name: str, slots: int) -> None:
        super().job_started(job_id, name, slots)
        self._name = name
        # If stdout is the same terminal, its lines must be printed above the panel.
        self._live = Live(
            console=self._console,
            get_renderable=self.panel,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._live.start()

    def epoch_ended(self, stats: EpochStats) -> None:
        with self._lock:
            self._status = "running"
            self._epoch, self._held = stats.epoch, stats.held
            now = self._monotonic()
            if not self._recent:
                self._recent.append((now - stats.seconds, 0))
            self._recent.append((now, stats.records))

    def progressed(self, what: str | None) -> None:
        with self._lock:
            self._progress = what
        if what is None:
            self._report_restored()

    def checkpoint_completed(self, stats: CheckpointStats) -> None:
        if stats.kind.is_savepoint:
            super().checkpoint_completed(stats)  # the user requested it and wants its path
            return
        self._resume_point.checkpoint_completed(stats)
        with self._lock:
            self._checkpoint = (stats, self._monotonic())

    def checkpoint_failed(self, checkpoint_id: CheckpointId, reason: str) -> None:
        super().checkpoint_failed(checkpoint_id, reason)
        with self._lock:
            self._failed_checkpoints += 1

    def restarting(self, failure: CheckdamError, restart: Restart) -> None:
        super().restarting(failure, restart)
        with self._lock:
            self._restarts += 1
            self._status = "restarting"
            self._recent.clear()

    def job_ended(self, end: JobEnd, last_checkpoint: str | None) -> None:
        self.close()
        super().job_ended(end, last_checkpoint)

    def close(self) -> None:
        """Remove the panel; the lines above it stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def panel(self) -> Panel:
        """Return the panel with the job's current figures."""
        with self._lock:
            now = self._monotonic()
            left = Table.grid(padding=(0, 2))
            left.add_row("epoch", "-" if self._epoch is None else str(self._epoch), *self._flow(now))
            left.add_row("checkpoint", *self._last_checkpoint(now))
            title = Text.assemble((self._name, "bold"), f" · {self._progress or self._status}")
            if self._restarts:
                title.append(f" · {number_format.counted(self._restarts, 'restart')}", style="yellow")
            if self._failed_checkpoints:
                failed = f" · {number_format.counted(self._failed_checkpoints, 'failed checkpoint')}"
                title.append(failed, style="yellow")
            return Panel(Group(left), title=title, title_align="left", border_style="cyan", subtitle=self._footer())

    def _footer(self) -> str:
        return f"{self._url} · Ctrl-C cancels" if self._url is not None else "Ctrl-C cancels"

    def _flow(self, now: float) -> tuple[str, str]:
        while len(self._recent) > 1 and self._recent[1][0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        if not self._recent:
            return "- records/s", self._state()
        since, _ = self._recent[0]
        records = sum(count for _, count in list(self._recent)[1:])
        rate = records / max(now - since, 0.001)
        return f"{number_format.number(rate)} records/s", self._state()

    def _state(self) -> str:
        about = "" if self._held.is_exact else "≈ "
        if self._held.entries == 1:
            return f"{about}1 entry held"
        return f"{about}{number_format.number(self._held.entries)} entries held"

    def _last_checkpoint(self, now: float) -> tuple[str, str, str]:
        if self._checkpoint is None:
            return "-", "none yet", ""
        stats, at = self._checkpoint
        return (
            str(stats.checkpoint_id),
            f"{number_format.duration(now - at)} ago, took {number_format.duration(stats.seconds)}",
            f"{number_format.size(stats.state_bytes)} ({number_format.size(stats.new_bytes)} new)",
        )
