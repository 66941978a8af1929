"""`python -m chaos --rounds 100 --seed 7`: round after round of real failures; exits 1 if one was not survived."""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable

import click

from chaos.local import step_round, storage_round
from chaos.rounds import Outcome, control_round, driver_round, executor_round, slot_round

Round = Callable[[random.Random], Outcome]

ROUNDS: tuple[Round, ...] = (
    slot_round,
    storage_round,
    driver_round,
    step_round,
    slot_round,
    storage_round,
    executor_round,
    step_round,
    control_round,
    step_round,
)
"""What ten rounds do: five have real processes, five hit a step or storage operation that a clock would rarely hit."""


def run_rounds(rounds: int, seed: int, tell: Callable[[str], None], *, first: int = 1) -> list[Outcome]:
    """Run rounds one after the other; the same seed gives the same rounds."""
    outcomes = []
    for number in range(first - 1, rounds):
        started = time.monotonic()
        outcome = ROUNDS[number % len(ROUNDS)](random.Random(f"{seed}-{number}"))
        verdict = "survived" if not outcome.faults else f"FAILED: {'; '.join(outcome.faults)}"
        seconds = time.monotonic() - started
        tell(f"{number + 1:4d}/{rounds}  {outcome.kind:9s} {seconds:6.1f} s  {outcome.told}: {verdict}")
        outcomes.append(outcome)
    return outcomes


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How many rounds to run.")
@click.option("--seed", type=int, help="Repeat an earlier run; by default a new seed, which is printed.")
@click.option("--first", default=1, show_default=True, help="Go on with an interrupted run from this round.")
def main(rounds: int, seed: int | None, first: int) -> None:
    """Kill slots, executors, drivers and storage, and check that nothing is lost, repeated or left behind."""
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"chaos: {rounds} rounds, seed {chosen}")
    outcomes = run_rounds(rounds, chosen, click.echo, first=first)
    failed = sum(1 for outcome in outcomes if outcome.faults)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(o.kind for o in outcomes).items())
    click.echo(f"{len(outcomes) - failed} survived, {failed} failed ({kinds}), seed {chosen}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
