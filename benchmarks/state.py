"""The cost of state: pause and bytes of a checkpoint, restore time, and memory."""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.processes import SideFailedError, Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes
from benchmarks.words import Changes, changes


class State:
    def __init__(self, sides: Sides, sizes: Sizes, inputs: Path) -> None:
        self._sides = sides
        self._sizes = sizes
        self._directory = inputs

    def snapshots(self) -> list[Figure]:
        many = self._take_checkpoints(self._sizes.many_keys)
        few = self._take_checkpoints(self._sizes.keys)
        pause, short = (statistics.median(each["sync_seconds"] for each in taken) for taken in (many, few))
        ratios = [each["bytes"] / each["serialized"] for each in many]
        return [
            Figure(f"synchronous part of a checkpoint, {self._keys}", 1e3 * pause, "ms", at_most=50),
            Figure(
                f"synchronous part against {self._sizes.keys:_} keys held".replace("_", " "), pause / short, at_most=1.5
            ),
            Figure("bytes written by it against the changed entries serialized", statistics.median(ratios), at_most=3),
            Figure("checkpoint: bytes against changed entries, merging included, on average", statistics.mean(ratios)),
            Figure("checkpoint: the most bytes that any wrote against its changed entries", max(ratios)),
            Figure("checkpoint: the longest synchronous part of any", 1e3 * max(c["sync_seconds"] for c in many), "ms"),
            Figure("checkpoint: from trigger to completion", 1e3 * statistics.median(c["seconds"] for c in many), "ms"),
            Figure("checkpoint: how many the medians are of", len(many), ""),
        ]

    @property
    def _keys(self) -> str:
        return f"{self._sizes.many_keys:_} keys held, {self._sizes.changed:_} changed".replace("_", " ")

    def _take_checkpoints(self, held: int) -> list[dict[str, Any]]:
        """Return the checkpoints that hold exactly one epoch's changes, with those changes' serialized size."""
        source = changes(self._directory / f"changes-{held}", held, self._sizes.changed, self._sizes.checkpoints)
        result = self._run_job(source, f"checkpoints with {held} keys held", "checkpoints")
        taken = one_epoch_each(result["checkpoints"], source)
        if not taken:
            raise SideFailedError("no checkpoint covers exactly one epoch: each took longer than the next epoch")
        return taken

    def _run_job(self, source: Changes, what: str, checkpoints: str, restore_from: str | None = None) -> Any:
        return self._sides.run(
            "checkdam",
            what,
            operator="process",
            sink="parquet",
            path=source.input.path,
            files_per_epoch=source.input.files_per_epoch,
            checkpoints=checkpoints,
            restore_from=restore_from,
        )

    def restore(self) -> list[Figure]:
        keys, changed = self._sizes.many_keys, self._sizes.changed
        files = self._directory / "state"
        self._sides.run(
            "write_state",
            f"{keys} keys to files",
            directory=str(files),
            backend="hashmap",
            keys=keys,
            changed=changed,
            checkpoints=4,
        )
        seconds = [
            self._sides.run("restore_state", "restore in one slot", directory=str(files), backend="hashmap", keys=keys)[
                "seconds"
            ]
            for _ in range(self._sizes.restores)
        ]
        return [
            Figure("restore, keys a second in one slot", keys / statistics.median(seconds), "keys/s", at_least=500_000),
            Figure(
                "restore: a job of two slots, from finding the checkpoint to the first epoch's end",
                self._resume(),
                "s",
            ),
        ]

    def _resume(self) -> float:
        """Start a job from a checkpoint of all keys; its next epoch has one record."""
        kept = self._directory / "kept"
        source = changes(self._directory / "resumed", self._sizes.many_keys, 1, 1)
        path = Path(source.input.path)
        later = path / "0001.txt"
        aside = later.rename(self._directory / "later.txt")
        before = self._run_job(source, "a checkpoint to resume from", str(kept))
        aside.rename(later)
        after = self._run_job(source, "resume from it", str(kept), before["checkpoints"][-1]["path"])
        [epoch] = after["epochs"]
        if epoch["keys"] != self._sizes.many_keys:
            raise SideFailedError(f"{epoch['keys']} keys after the restore, not {self._sizes.many_keys}")
        return float(epoch["ended_at"] - after["restored_at"])

    def memory(self) -> list[Figure]:
        """Measure memory as counted by Python and by the operating system; the worse one is compared with the bar."""
        ratios, figures = [], []
        keys = self._sizes.many_keys
        for traced, counted in ((True, "as Python counts"), (False, "resident")):
            dict_ = self._sides.run("memory_of_dict", f"a dict, {counted}", keys=keys, traced=traced)
            store = self._sides.run("memory_of_store", f"the state, {counted}", keys=keys, traced=traced)
            ratios.append(store["bytes"] / dict_["bytes"])
            figures += [
                Figure(f"memory: a dict, {counted}", dict_["bytes"] / keys, "bytes a key"),
                Figure(f"memory: the state, {counted}", store["bytes"] / keys, "bytes a key"),
            ]
        figures.append(
            Figure("memory: the state at its peak, a full snapshot being written", store["peak"] / keys, "bytes a key")
        )
        return [Figure("memory for state against a bare dict", max(ratios), at_most=1.2), *figures]


def one_epoch_each(checkpoints: list[dict[str, Any]], source: Changes) -> list[dict[str, Any]]:
    """Return the checkpoints that cover one epoch: while a checkpoint takes long, the next covers several epochs."""
    chosen = []
    for before, after in pairwise(checkpoints):
        if after["epoch"] == before["epoch"] + 1:
            chosen.append({**after, "serialized": source.serialized[after["epoch"] - 2]})
    return chosen
