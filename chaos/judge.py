"""The verdict on a round: state and output as if nothing had happened, and nothing left behind."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos.job import UID
from checkdam.backends.contract import StoreOwner
from checkdam.backends.hashmap import HashMapStateBackend
from checkdam.checkpoint.completed import CompletedCheckpoint
from checkdam.checkpoint.store import CheckpointStore, load_checkpoint, verify_files
from checkdam.graph.operators import OP_STATE
from checkdam.ids import Attempt, JobId, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.types import type_info
from checkdam.storage.filesystem import TEMPORARY_PREFIX, open_storage
from checkdam.storage.subtree import subtree

MARK = "CHECKDAM_CHAOS_ROUND"
"""An environment variable that every process of a round inherits, so that survivors can be told."""
_PATIENCE_SECONDS = 15.0


def faults_of(directory: Path, words: Counter[str], mark: str) -> list[str]:
    """Everything that is not as it should be after a round; empty if all is well."""
    return [
        *_output_faults(directory / "output", words),
        *_state_faults(directory / "checkpoints", words),
        *_savepoint_faults(directory / "savepoints", words),
        *_survivors(mark),
        *_leftovers(directory / "tmp"),
    ]


def _output_faults(output: Path, words: Counter[str]) -> Iterator[str]:
    seen: Counter[tuple[str, int]] = Counter()
    for part in output.glob("part-*"):
        for line in part.read_text().splitlines():
            record = json.loads(line)
            seen[record["f0"], record["f1"]] += 1
    expected = Counter({(word, n): 1 for word, count in words.items() for n in range(1, count + 1)})
    if seen != expected:
        yield f"output: {sum((expected - seen).values())} records lost, {sum((seen - expected).values())} too many"
    strangers = [path.name for path in output.iterdir() if not path.name.startswith("part-")]
    if strangers:
        yield f"output directory holds {strangers}"


def _state_faults(checkpoints: Path, words: Counter[str]) -> Iterator[str]:
    storage = open_storage(str(checkpoints))
    jobs = sorted({status.path.split("/")[0] for status in storage.list("")})
    if len(jobs) != 1:
        yield f"{len(jobs)} jobs in the checkpoint directory"
        return
    store = CheckpointStore(storage, JobId(jobs[0]))
    kept = [store.load(checkpoint_id) for checkpoint_id in store.completed()]
    if not kept:
        yield "no complete checkpoint"
        return
    store.verify(kept[-1])
    counts = _counts(kept[-1], str(checkpoints / jobs[0]))
    if counts != words:
        yield f"state: {len(counts)} words, {sum(counts.values())} in all; expected {len(words)}, {sum(words.values())}"
    referenced = {f"shared/{Path(file.path).name}" for checkpoint in kept for file in checkpoint.files()}
    for status in subtree(storage, jobs[0]).list(""):
        whole = status.path in referenced or status.path.endswith("/_metadata")
        if TEMPORARY_PREFIX in status.path or not whole:
            yield f"orphaned file {status.path}"


def _savepoint_faults(savepoints: Path, words: Counter[str]) -> Iterator[str]:
    """A savepoint that has a `_metadata` must be whole, and hold counts that the job has come past."""
    for path in savepoints.glob("*/_metadata"):
        checkpoint, directory = load_checkpoint(str(path.parent))
        verify_files(open_storage(directory), "", checkpoint)
        counts = _counts(checkpoint, directory)
        ahead = [word for word, count in counts.items() if count > words[word]]
        if ahead or not counts:
            yield f"savepoint {path.parent.name} holds {len(counts)} words, {len(ahead)} of them counted too often"


def _counts(checkpoint: CompletedCheckpoint, directory: str) -> Counter[str]:
    owner = StoreOwner(
        uid=OperatorUid(UID),
        subtask=SubtaskIndex(0),
        attempt=Attempt("judge"),
        key_groups=KeyGroupRange(0, checkpoint.max_parallelism - 1),
        max_parallelism=checkpoint.max_parallelism,
        key_type=type_info(str),
    )
    [entry] = [entry for entry in checkpoint.operators if entry.uid == UID]
    handles = list(entry.subtasks.values())
    live = HashMapStateBackend().open(owner, handles, open_storage(directory), "", claim=False)
    kept = live.cells(StateSpec(OP_STATE, StateKind.VALUE, type_info(tuple[str, int])))
    return Counter({word: count for word, (_, count) in kept.all()})


def _survivors(mark: str) -> Iterator[str]:
    """Processes of the round; those that are on their way out get a moment."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while alive := list(_marked(mark)):
        if time.monotonic() > deadline:
            yield f"processes left: {alive}"
            return
        _wait_for_exit(alive[0][0])


def _marked(mark: str) -> Iterator[tuple[int, str]]:
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name), (entry / "cmdline").read_bytes()[:200].replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended while we looked, or is not ours


def _wait_for_exit(pid: int) -> None:
    import select

    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([fd], [], [], 1.0)
    finally:
        os.close(fd)


def _leftovers(temporary: Path) -> Iterator[str]:
    left = sorted(path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata"))
    if left:
        yield f"temporary files left: {left}"
