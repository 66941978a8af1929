"""`python -m chaos --rounds 200 --seed 7`: runs rounds of real failures; exits 1 if a job did not survive one."""

from __future__ import annotations

import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import click

from chaos.jobs import JOBS
from chaos.local import LOCAL_JOBS, LOCAL_KINDS
from chaos.rounds import PROCESS_KINDS, Outcome, prepare_quick_java, process_round

SEQUENCE = (
    "frozen-slot",
    "storage",
    "frozen-driver",
    "step",
    "sigterm",
    "vanished",
    "damage",
    "shared-tmp",
    "control",
    "executor",
    "slot",
    "storage",
    "driver",
    "step",
)
"""The kinds of round, in a repeated sequence; some hit a step or a storage operation inside one process."""


def run_rounds(
    rounds: int, seed: int, tell: Callable[[str], None], *, first: int = 1, kind: str | None = None
) -> list[Outcome]:
    """Run rounds one after the other; the same seed gives the same rounds."""
    outcomes = []
    for number in range(first - 1, rounds):
        started = time.monotonic()
        planned, job = _plan(number)
        outcome = _play(kind or planned, job, random.Random(f"{seed}-{number}"))
        seconds = time.monotonic() - started
        verdict = "survived"
        if outcome.faults:
            verdict = f"FAILED: {'; '.join(outcome.faults)}"
        if outcome.kept is not None:
            verdict += f" (kept in {outcome.kept})"
        what = f"{outcome.kind:13s} {outcome.job:10s} {seconds:6.1f} s  {outcome.told}"
        tell(f"{number + 1:4d}/{rounds}  {what}: {verdict}")
        outcomes.append(outcome)
    return outcomes


def planned_rounds(rounds: int) -> list[tuple[str, str]]:
    """Return kind and job of each of the first rounds."""
    return [_plan(number) for number in range(rounds)]


def _plan(number: int) -> tuple[str, str]:
    """Alternate between the jobs within a pass through the sequence, and at each place of it from pass to pass."""
    passes, place = divmod(number, len(SEQUENCE))
    kind = SEQUENCE[place]
    jobs = LOCAL_JOBS if kind in LOCAL_KINDS else tuple(JOBS)
    return kind, jobs[(passes + place) % len(jobs)]


def _play(kind: str, job: str, rng: random.Random) -> Outcome:
    if kind in LOCAL_KINDS:
        return LOCAL_KINDS[kind](job, rng)
    return process_round(kind, JOBS[job], rng)


@click.command()
@click.option("--rounds", default=200, show_default=True, help="How many rounds to run.")
@click.option("--seed", type=int, help="Repeat an earlier run; by default a new seed, which is printed.")
@click.option("--first", default=1, show_default=True, help="Go on with an interrupted run from this round.")
@click.option("--kind", type=click.Choice([*PROCESS_KINDS, *LOCAL_KINDS]), help="Run rounds of this kind only.")
def main(rounds: int, seed: int | None, first: int, kind: str | None) -> None:
    """Kill, freeze and terminate what a job consists of, and check that nothing is lost, repeated or left behind."""
    signal.signal(signal.SIGTERM, _exit)  # so that a round ends its processes on SIGTERM
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"chaos: {rounds} rounds, seed {chosen}")
    prepare_quick_java()
    outcomes = run_rounds(rounds, chosen, click.echo, first=first, kind=kind)
    failed = Counter(outcome.kind for outcome in outcomes if outcome.faults)
    for each, count in sorted(Counter(outcome.kind for outcome in outcomes).items()):
        click.echo(f"{each:13s} {count - failed[each]:4d} survived, {failed[each]} failed")
    click.echo(f"{len(outcomes) - failed.total()} survived, {failed.total()} failed, seed {chosen}")
    sys.exit(1 if failed else 0)


def _exit(number: int, frame: Any) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
