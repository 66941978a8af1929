"""The verdict on a round: state and output must be as without failures, and nothing may be left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chaos.contract import ChaosJob
from chaos.place import Place
from chaos.processes import survivors
from checkdam.checkpoint.checkpoint_store import CheckpointStore, load_checkpoint, verify_files
from checkdam.checkpoint.terms import TERMS
from checkdam.connectors.file_sink import WITHDRAWN
from checkdam.ids import JobId
from checkdam.runtime.driver.publish_history import PUBLISHED
from checkdam.state_reader import Savepoint
from checkdam.storage.filesystem import open_storage
from checkdam.storage.subtree import subtree


def job_faults(job: ChaosJob, place: Place) -> Iterator[str]:
    """Yield everything wrong in the output and state of a job that has ended."""
    directories = place.job_directories()
    if len(directories) != 1:
        yield f"{len(directories)} jobs in the checkpoint directory"
        return
    [directory] = directories
    store = CheckpointStore(open_storage(str(place.checkpoints)), JobId(directory.name))
    kept = store.completed()
    if not kept:
        yield "no complete checkpoint"
        return
    for checkpoint_id in kept:
        store.verify(store.load(checkpoint_id))
    *older, last = [Savepoint.load(str(directory / f"chk-{checkpoint_id}")) for checkpoint_id in kept]
    yield from job.output_faults(place, last)
    yield from job.final_state_faults(place, last)
    for checkpoint in older:
        yield from job.state_faults(place, checkpoint)
    yield from _savepoint_faults(job, place)
    yield from (f"orphaned file {path}" for path in orphans(place))


def orphans(place: Place) -> Iterator[str]:
    """Yield the files of a job's directory and of its sinks that no usable checkpoint and no reader needs."""
    storage = open_storage(str(place.checkpoints))
    for directory in place.job_directories():
        store = CheckpointStore(storage, JobId(directory.name))
        kept = [store.load(checkpoint_id) for checkpoint_id in store.completed()]
        needed = {file.path for checkpoint in kept for file in checkpoint.files()}
        needed |= {f"chk-{checkpoint.checkpoint_id}/_metadata" for checkpoint in kept}
        for status in subtree(storage, directory.name).list(""):
            if status.path not in needed and not status.path.startswith((PUBLISHED, f"{TERMS}/")):
                yield status.path
    for sink in place.output.iterdir():
        for path in sink.iterdir():
            if not path.name.startswith("part-") and path.name != WITHDRAWN:
                yield f"{sink.name}/{path.name}"


def rest_faults(temporary: Path, mark: str, patience_seconds: float) -> Iterator[str]:
    """Yield the processes and temporary files that a round has left."""
    yield from (f"process left: {process}" for process in survivors(mark, patience_seconds))
    left = sorted(path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata"))
    if left:
        yield f"temporary files left: {left}"


def _savepoint_faults(job: ChaosJob, place: Place) -> Iterator[str]:
    """Yield savepoints that have a `_metadata` but are damaged, or hold a state that the job never had."""
    for path in place.savepoints.glob("*/_metadata"):
        checkpoint, directory = load_checkpoint(str(path.parent))
        verify_files(open_storage(directory), "", checkpoint)
        yield from job.state_faults(place, Savepoint.load(str(path.parent)))
