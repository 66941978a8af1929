"""One round: make input, run the job, kill, resume until it ends, judge."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.asking import STOPPED
from chaos.judge import MARK, faults_of

_FILES = 16
_EPOCHS = _FILES // 2
_LIMIT_SECONDS = 240


@dataclass(frozen=True)
class Outcome:
    """What a round did and what was wrong afterwards."""

    kind: str
    told: str
    faults: list[str]


def slot_round(rng: random.Random) -> Outcome:
    """A slot dies between two epochs, in one, or while it writes a snapshot; the same driver recovers."""
    at = rng.randint(1, _EPOCHS - 1)
    moment = rng.choice([f"slot:{at}:{rng.uniform(0, 0.6):.3f}", f"slot-in-snapshot:{at}"])
    return _round("slot", [moment], rng)


def executor_round(rng: random.Random) -> Outcome:
    """An executor dies, and with it the slots on it."""
    moment = f"executor:{rng.randint(1, _EPOCHS - 2)}:{rng.uniform(0, 1.0):.3f}"
    return _round("executor", [moment], rng, master="local-cluster[2,1,1024]")


def driver_round(rng: random.Random) -> Outcome:
    """The driver dies, also between `_metadata` and what follows from it; another process resumes."""
    moments = []
    first = rng.randint(1, _EPOCHS - 2)
    for at in sorted({first, first + rng.randint(0, 2)}):
        moments.append(
            rng.choice([f"driver:{at}:{rng.uniform(0, 0.6):.3f}", f"before-metadata:{at}", f"after-metadata:{at}"])
        )
    return _round("driver", moments, rng)


def control_round(rng: random.Random) -> Outcome:
    """Somebody asks for a savepoint, a rescaling or a stop, and the driver may die in the middle of it."""
    moments = []
    for _ in range(2):
        verb = rng.choice(["checkpoint", "savepoint", "savepoint", "stop", "rescale-1", "rescale-3", "rescale-4"])
        killed = f":{rng.uniform(0, 1.5):.3f}" if rng.random() < 0.7 else ""
        moments.append(f"ask-{verb}:{rng.randint(1, 3)}{killed}")
    return _round("control", moments, rng)


PROCESS_ROUNDS: dict[str, Callable[[random.Random], Outcome]] = {
    "slot": slot_round,
    "driver": driver_round,
    "executor": executor_round,
    "control": control_round,
}


def _round(kind: str, moments: list[str], rng: random.Random, master: str = "local[2]") -> Outcome:
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    mark = directory.name
    try:
        words = _make_input(directory, rng)
        ended = False
        for moment in [*moments, None]:
            ended = _run_job(directory, master, moment, rng.randint(0, 9), mark)
            if ended:
                break
        faults = faults_of(directory, words, mark) if ended else ["the job did not end: see its log above"]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Outcome(kind, ", ".join(moments), faults)


def _make_input(directory: Path, rng: random.Random) -> Counter[str]:
    words: Counter[str] = Counter()
    for name in ("input", "output", "checkpoints", "savepoints", "tmp"):
        (directory / name).mkdir()
    for number in range(_FILES):
        some = [f"word{rng.randint(0, 400)}" for _ in range(rng.randint(0, 300))]
        words.update(some)
        (directory / "input" / f"{number:03d}.txt").write_text("".join(f"{word}\n" for word in some))
    return words


def _run_job(directory: Path, master: str, moment: str | None, victim: int, mark: str) -> bool:
    """Run the job once; True if it came to its end, False if it was killed or stopped on the way."""
    command = [sys.executable, "-m", "chaos.job", str(directory), "--master", master, "--victim", str(victim)]
    if moment is not None:
        command += ["--moment", moment]
    if any((directory / "checkpoints").glob("*/chk-*/_metadata")):
        command.append("--resume")
    # A JVM that lives for seconds is not worth a second compiler.
    java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC".strip()
    environment = {**os.environ, MARK: mark, "TMPDIR": str(directory / "tmp"), "JAVA_TOOL_OPTIONS": java}
    log = directory / "log"
    with log.open("w") as output:
        ended = subprocess.run(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_SECONDS,
            cwd=Path(__file__).parent.parent,
            check=False,
        )
    if ended.returncode not in (0, -9, STOPPED):
        sys.stderr.write(log.read_text()[-4000:])
    return ended.returncode == 0
