"""A job with every kind of state, on both backends: whatever fails, all of it comes back exactly as it was."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from tests.support.every_state import EveryState, Record

from checkdam.backends import HashMapStateBackend, RocksDBStateBackend
from checkdam.backends.contract import KeyedStateBackend
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.errors import CheckdamError
from checkdam.ids import CheckpointId
from checkdam.runtime.restart import NoRestart
from checkdam.state.snapshot_handles import StateFile
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import set_max_state_size
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.testing.local_job import EVERY_EPOCH, JOB_ID, LocalJob
from checkdam.testing.trouble import DriverKilled, Step, Trouble, kill_driver

pytestmark = pytest.mark.slow

BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("16 MB")}
KEYS = [f"key{n}" for n in range(6)]
EPOCHS = [[(key, 10 * epoch + n) for n, key in enumerate([*KEYS, "rule"])] for epoch in range(4)]


@cache
def undisturbed(epochs: int = len(EPOCHS)) -> Counter[str]:
    every = EveryState(EPOCHS[:epochs], HashMapStateBackend())
    every.job(parallelism=1).run()
    return every.output()


def run_to_the_end(every: EveryState, **options: object) -> None:
    """Started again, as a user would, when the driver was killed or the job failed."""
    for _ in range(3):
        job = every.job(**options)
        try:
            job.run()
        except (DriverKilled, CheckdamError) as failure:
            last = failure
        else:
            every.check_operator_state(job.checkpoint())
            return
    raise AssertionError(f"the job never ended: {last!r}") from last


def test_the_output_tells_of_every_state_timer_and_rule() -> None:
    assert undisturbed()["key0: 2 [0, 10] 10 [(0, 1), (1, 1)] rules [(6, 'rule 6'), (16, 'rule 16')]"] == 1
    assert undisturbed()["key0: 1 [0] 0 [(0, 1)] at 5"] == 1
    assert undisturbed().total() == 2 * len(KEYS) * len(EPOCHS)


@pytest.mark.parametrize(("backend", "epochs"), [("hashmap", 4), ("rocksdb", 2)])
@pytest.mark.parametrize("fault", Fault)
def test_one_failed_change_of_checkpoint_storage_loses_repeats_and_leaves_nothing(
    fault: Fault, backend: str, epochs: int
) -> None:
    for nth in itertools.count():
        storage = FaultyStorage(MemoryStorage(), at=nth, fault=fault)
        every = EveryState(EPOCHS[:epochs], BACKENDS[backend], storage=storage)

        run_to_the_end(every, parallelism=2 if backend == "hashmap" else 1)

        assert every.output() == undisturbed(epochs), nth
        assert every.leftovers() == [], nth
        if not storage.has_failed:
            break
    assert nth > 20


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 4)])
def test_all_state_is_restored_at_any_parallelism(backend: str, before: int, after: int) -> None:
    every = EveryState(EPOCHS, BACKENDS[backend])
    with pytest.raises(DriverKilled):
        every.job(parallelism=before, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=3)]).run()

    run_to_the_end(every, parallelism=after)

    assert every.output() == undisturbed()
    assert every.leftovers() == []


@pytest.mark.parametrize(("before", "after"), [("hashmap", "rocksdb"), ("rocksdb", "hashmap")])
def test_a_job_may_go_on_with_the_other_backend(before: str, after: str) -> None:
    every = EveryState(EPOCHS, BACKENDS[before])
    with pytest.raises(DriverKilled):
        every.job(troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=3)]).run()

    every._backend = BACKENDS[after]
    run_to_the_end(every)

    assert every.output() == undisturbed()


@pytest.mark.parametrize("damage", ["gone", "altered"])
def test_a_damaged_file_of_operator_state_gives_way_to_the_checkpoint_before(damage: str) -> None:
    every = EveryState(EPOCHS, HashMapStateBackend())
    two = replace(EVERY_EPOCH, num_retained=2)
    with pytest.raises(DriverKilled):
        every.job(checkpoints=two, troubles=[Trouble(Step.BEFORE_EPOCH, kill_driver, number=4)]).run()
    store = CheckpointStore(every.storage, JOB_ID)
    newest = store.load(CheckpointId(store.completed()[-1]))
    file = next(
        handle.content
        for entry in newest.operators
        for handle in entry.operator_states.values()
        if isinstance(handle.content, StateFile)
    )
    path = f"{JOB_ID}/{file.path}"
    if damage == "gone":
        every.storage.delete(path)
    else:
        whole = every.storage.read(path)
        every.storage.write(path, whole[:-1] + bytes([whole[-1] ^ 1]))

    job = every.job(checkpoints=two)
    heard = job.run()

    every.check_operator_state(job.checkpoint())
    assert set(every.output()) == set(undisturbed())  # what the damaged checkpoint had published comes again
    assert {path.rpartition("-")[2] for path, _ in heard.skipped} == {str(newest.checkpoint_id)}


def test_memory_storage_serves_a_job_in_one_process_and_declines_what_is_too_large() -> None:
    every = EveryState(EPOCHS, HashMapStateBackend())
    every.storage = open_storage("memory://every-state")
    run_to_the_end(every)
    assert every.output() == undisturbed()

    small = EveryState(EPOCHS, HashMapStateBackend())
    set_max_state_size("memory://too-small", 10_000)
    checkpoints = replace(EVERY_EPOCH, storage="memory://too-small")
    job = LocalJob(small.build, EPOCHS, None, record_type=Record, checkpoints=checkpoints, restart=NoRestart())
    with pytest.raises(CheckdamError):
        job.run()
    reason = job.heard.failed_checkpoints[0][1]
    assert "the state of operator" in reason
    assert "at most 10,000 a state" in reason
    assert "execution.checkpointing.memory-storage.max-state-size" in reason
