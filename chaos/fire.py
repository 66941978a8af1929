"""A round with real processes: starts drivers with traps, checks the job's results, and cleans up."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.contract import ChaosJob
from chaos.judge import job_faults, rest_faults
from chaos.place import Place
from chaos.processes import MARK, is_stopped, kill_all, marked, send, survivors
from chaos.traps import Moment, When
from chaos.warm_start import quick_environment, quick_settings
from checkdam.errors import CheckdamError

_PATIENCE_SECONDS = 15.0
KILLED = -9
TERMINATED = 143

_LIMIT_SECONDS = 240.0
_REPOSITORY = Path(__file__).parent.parent


class RoundFailed(Exception):  # noqa: N818  a verdict, not an error
    """A process of the round did not behave as required."""


class Driver:
    """A driver process, in its own session."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.log = log

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self._process.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RoundFailed(f"a driver did not end within {_LIMIT_SECONDS:.0f} s: {self.log}") from None

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds. Return False if the driver ends first."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            if self._process.poll() is not None:
                return condition()
            if time.monotonic() > deadline:
                raise RoundFailed(f"a driver did not come far enough within {_LIMIT_SECONDS:.0f} s: {self.log}")
            time.sleep(0.05)
        return True

    def has_frozen(self) -> bool:
        """Wait until the process is stopped. Return False if it ends first."""
        return self.wait_for(lambda: is_stopped(self._process.pid))

    def kill(self) -> None:
        self._process.kill()

    def must_end_with(self, *codes: int) -> int:
        code = self.wait()
        if code not in codes:
            raise RoundFailed(f"a driver ended with {code}: {self.log}")
        return code


@dataclass
class Fire:
    """One round of one job. On exit it ends every process and, unless there are faults, removes all files."""

    job: ChaosJob
    rng: random.Random
    settings: Mapping[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.place = Place(self.directory, self.directory / "tmp")
        self.place.make()
        self.job.write_input(self.place, self.rng)
        self._starts = 0

    def __enter__(self) -> Fire:
        return self

    def __exit__(self, kind: object, *more: object) -> None:
        kill_all(self._mark)
        if not self.faults and kind is None:
            shutil.rmtree(self.directory)

    def moment(self, act: str, *whens: When, first: int = 1, last: int = 5) -> Moment:
        """Choose one of these moments for an act; `first` and `last` bound the number of an epoch or checkpoint."""
        when = self.rng.choice(whens)
        if when is When.SLOTS:
            return Moment(act, when, 1, self.rng.uniform(0, 1.5))
        delay = self.rng.uniform(0, 0.6) if when is When.EPOCH else 0.0
        return Moment(act, when, self.rng.randint(first, last), delay)

    def start(
        self,
        *moments: Moment,
        place: Place | None = None,
        settings: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        take_over: bool = False,
    ) -> Driver:
        """Start a driver with these traps. It resumes the job if there is something to resume from."""
        self._starts += 1
        self.told += [str(moment) for moment in moments]
        command = [*prefix, sys.executable, "-m", "chaos.job", self.job.name, str((place or self.place).root)]
        command += ["--take-over"] if take_over else []
        command += ["--victim", str(self.rng.randint(0, 9))]
        for moment in moments:
            command += ["--moment", str(moment)]
        wanted = {"spark.master": "local[2]", "parallelism.default": "2", **self.settings, **(settings or {})}
        for key, value in {**quick_settings(wanted["spark.master"]), **wanted}.items():
            command += ["-D", f"{key}={value}"]
        environment = {
            **os.environ,
            **quick_environment(),
            MARK: self._mark,
            "TMPDIR": str(self.place.temporary),
            # Executors have another working directory and need the jobs' modules.
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH")))),
        }
        log = self.directory / f"log-{self._starts}"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=_REPOSITORY,
                start_new_session=True,
            )
        return Driver(process, log)

    def run_to_the_end(self, *starts: Sequence[Moment], interrupted: Collection[int] = (KILLED,)) -> None:
        """Start the job with each of these sets of traps, then without any, until it ends."""
        for moments in (*starts, ()):
            if self.start(*moments).must_end_with(0, *(interrupted if moments else ())) == 0:
                return

    def wait_for_processes(self) -> None:
        """Wait for the end of all processes of the round, for a while: those that stay are a fault at its end."""
        survivors(self._mark, _PATIENCE_SECONDS)

    def wake(self) -> None:
        """Resume all frozen processes."""
        send(signal.SIGCONT, marked(self._mark))

    def judge(self, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """Collect the faults of the round; its processes get this long to end."""
        try:
            self.faults += job_faults(self.job, self.place)
        except CheckdamError as error:
            self.faults.append(f"what the job has left cannot be read: {error}")
        self.faults += rest_faults(self.place.temporary, self._mark, patience_seconds)

    @property
    def _mark(self) -> str:
        return self.directory.name
