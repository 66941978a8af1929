"""Rounds without Spark: the same slots, coordinator and formats in one process, where every step can be hit."""

from __future__ import annotations

import random

from chaos.rounds import Outcome
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.trouble import Deed, Step, Trouble, kill_driver, kill_slot, repeat_level
from checkdam.testing.word_count import UID, WordCount

_EPOCHS = 6
_OPERATIONS = 60  # about what such a run does to its storage


def storage_round(rng: random.Random) -> Outcome:
    """One storage operation is refused, or done with its reply lost, on the checkpoints' side or the sink's."""
    fault, nth = rng.choice(list(Fault)), rng.randrange(_OPERATIONS)
    faulty = FaultyStorage(MemoryStorage(), at=nth, fault=fault)
    on_sink = rng.random() < 0.3
    words = WordCount(_words(rng), storage=None if on_sink else faulty, sink=faulty if on_sink else None)
    return _judged("storage", f"{fault.name} at {nth} of the {'sink' if on_sink else 'checkpoints'}", words, [])


def step_round(rng: random.Random) -> Outcome:
    """A slot or the driver dies, or a task runs twice, at some step of an epoch or a checkpoint."""
    deeds: dict[str, Deed] = {
        "slot 0 dies": kill_slot(0),
        "slot 1 dies": kill_slot(1),
        "driver dies": kill_driver,
        "task retried": repeat_level,
    }
    troubles, told = [], []
    for _ in range(rng.randint(1, 3)):
        what = rng.choice(list(deeds))
        step = Step.AFTER_LEVEL if what == "task retried" else rng.choice(list(Step))
        number = rng.randint(1, _EPOCHS)
        troubles.append(Trouble(step, deeds[what], number=number))
        told.append(f"{what} {step.value} ({number})")
    return _judged("step", "; ".join(told), WordCount(_words(rng)), troubles)


def _words(rng: random.Random) -> list[list[str]]:
    return [[f"word{rng.randint(0, 30)}" for _ in range(rng.randint(0, 40))] for _ in range(_EPOCHS)]


def _judged(kind: str, told: str, words: WordCount, troubles: list[Trouble]) -> Outcome:
    job = words.run(troubles)
    faults = []
    if job.state(UID) != words.expected_state():
        faults.append("the final state differs from that of an uninterrupted run")
    if words.output() != words.expected_output():
        faults.append("the output differs from that of an uninterrupted run")
    faults += [f"left behind: {path}" for path in words.leftovers()]
    return Outcome(kind, told, faults)
