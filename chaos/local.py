"""Rounds without Spark: the same slots, coordinator and formats in one process, where every step can be hit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from tests.support.every_state import RULE, EveryState
from tests.support.word_count import UID, WordCount

from chaos.rounds import Outcome
from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.errors import CheckdamError
from checkdam.storage.contract import Storage
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.trouble import Deed, DriverKilled, Step, Trouble, kill_driver, kill_slot, repeat_level

_EPOCHS = 6
_OPERATIONS = {"words": 60, "all-states": 150}  # approximate number of storage operations of a run

_KEYS = [*(f"key{n}" for n in range(6)), RULE]
_RECORDS = [[(key, 10 * epoch + n) for n, key in enumerate(_KEYS)] for epoch in range(4)]


def storage_round(job: str, rng: random.Random) -> Outcome:
    """Fail one storage operation, or lose its reply, on the checkpoints' side or the sink's."""
    fault, nth = rng.choice(list(Fault)), rng.randrange(_OPERATIONS[job])
    on_sink = rng.random() < 0.3
    faulty = FaultyStorage(MemoryStorage(), at=nth, fault=fault)
    told = f"{fault.name} at {nth} of the {'sink' if on_sink else 'checkpoints'}"
    storage, sink = (None, faulty) if on_sink else (faulty, None)
    return Outcome("storage", job, told, _RUNS[job](rng, [], storage, sink))


def step_round(job: str, rng: random.Random) -> Outcome:
    """Kill a slot or the driver, or run a task twice, at some step of an epoch or a checkpoint."""
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
    return Outcome("step", job, "; ".join(told), _RUNS[job](rng, troubles, None, None))


LOCAL_KINDS: dict[str, Callable[[str, random.Random], Outcome]] = {"storage": storage_round, "step": step_round}


def _run_words(
    rng: random.Random, troubles: Sequence[Trouble], storage: Storage | None, sink: Storage | None
) -> list[str]:
    epochs = [[f"word{rng.randint(0, 30)}" for _ in range(rng.randint(0, 40))] for _ in range(_EPOCHS)]
    words = WordCount(epochs, storage=storage, sink=sink)
    job = words.run(troubles)
    faults = []
    if job.state(UID) != words.expected_state():
        faults.append("the final state differs from that of an uninterrupted run")
    if words.output() != words.expected_output():
        faults.append("the output differs from that of an uninterrupted run")
    return faults + [f"left behind: {path}" for path in words.leftovers()]


def _run_every_state(
    rng: random.Random, troubles: Sequence[Trouble], storage: Storage | None, sink: Storage | None
) -> list[str]:
    every = EveryState(_RECORDS, RocksDBStateBackend("16 MB"), storage=storage, sink=sink)
    last: BaseException | None = None
    for _ in range(len(troubles) + 2):
        job = every.job(troubles=troubles)
        try:
            job.run()
        except (DriverKilled, CheckdamError) as failure:
            last = failure
        else:
            break
    else:
        return [f"the job never ended: {last!r}"]
    faults = []
    try:
        every.check_operator_state(job.checkpoint())
    except AssertionError as difference:
        faults.append(f"the operator state differs: {difference}")
    if every.output() != _undisturbed():
        faults.append("the output differs from that of an uninterrupted run")
    return faults + [f"left behind: {path}" for path in every.leftovers()]


_RUNS: dict[str, Callable[..., list[str]]] = {"words": _run_words, "all-states": _run_every_state}
LOCAL_JOBS = tuple(_RUNS)
"""The jobs of these rounds."""


@cache
def _undisturbed() -> Counter[str]:
    every = EveryState(_RECORDS, HashMapStateBackend())
    every.job(parallelism=1).run()
    return every.output()
