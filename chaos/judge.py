"""The verdict on a round: state and output as if nothing had happened, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chaos.contract import ChaosJob
from chaos.place import Place
from chaos.processes import survivors
from checkdam.checkpoint.store import CheckpointStore, load_checkpoint, verify_files
from checkdam.connectors.files import WITHDRAWN
from checkdam.ids import JobId
from checkdam.runtime.published import PUBLISHED
from checkdam.state_reader import Savepoint
from checkdam.storage.filesystem import TEMPORARY_PREFIX, open_storage
from checkdam.storage.subtree import subtree


def job_faults(job: ChaosJob, place: Place) -> Iterator[str]:
    """Yield all that is wrong with what a job that came to its end has written."""
    directories = place.job_directories()
    if len(directories) != 1:
        yield f"{len(directories)} jobs in the checkpoint directory"
        return
    [directory] = directories
    storage = open_storage(str(place.checkpoints))
    store = CheckpointStore(storage, JobId(directory.name))
    kept = [store.load(checkpoint_id) for checkpoint_id in store.completed()]
    if not kept:
        yield "no complete checkpoint"
        return
    for checkpoint in kept:
        store.verify(checkpoint)
    paths = [directory / f"chk-{checkpoint.checkpoint_id}" for checkpoint in kept]
    last = Savepoint.load(str(paths[-1]))
    yield from job.output_faults(place, last)
    yield from job.final_state_faults(place, last)
    for path in paths[:-1]:
        yield from job.state_faults(place, Savepoint.load(str(path)))
    referenced = {f"shared/{Path(file.path).name}" for checkpoint in kept for file in checkpoint.files()}
    for status in subtree(storage, directory.name).list(""):
        is_whole = status.path in referenced or status.path.endswith("/_metadata") or status.path.startswith(PUBLISHED)
        if TEMPORARY_PREFIX in status.path or not is_whole:
            yield f"orphaned file {status.path}"
    for sink in place.output.iterdir():
        strangers = sorted(path.name for path in sink.iterdir() if not path.name.startswith(("part-", WITHDRAWN)))
        if strangers:
            yield f"the sink {sink.name} holds {strangers}"
    yield from _savepoint_faults(job, place)


def rest_faults(temporary: Path, mark: str, patience_seconds: float) -> Iterator[str]:
    """Yield the processes and temporary files that a round has left."""
    yield from (f"process left: {process}" for process in survivors(mark, patience_seconds))
    left = sorted(path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata"))
    if left:
        yield f"temporary files left: {left}"


def _savepoint_faults(job: ChaosJob, place: Place) -> Iterator[str]:
    """Find a savepoint that has a `_metadata` and is not whole, or holds what the job never held."""
    for path in place.savepoints.glob("*/_metadata"):
        checkpoint, directory = load_checkpoint(str(path.parent))
        verify_files(open_storage(directory), "", checkpoint)
        yield from job.state_faults(place, Savepoint.load(str(path.parent)))
