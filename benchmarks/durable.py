"""Comparisons with large state: larger than memory, incremental checkpoints, and restores at another parallelism."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.kinds import BACKENDS
from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes

_MB = 1 << 20


class Durable:
    def __init__(self, sides: Sides, sizes: Sizes, inputs: Path) -> None:
        self._sides = sides
        self._sizes = sizes
        self._directory = inputs
        self._written: dict[str, list[int]] = {}  # by backend

    def larger_than_memory(self) -> list[Figure]:
        """Measure the peak memory of the process above its memory right before the state was opened."""
        sizes = self._sizes
        state = f"rocksdb with state of {sizes.times_budget} × its budget of {sizes.budget // _MB} MB"
        result = self._sides.run(
            "larger_than_memory",
            state,
            budget=sizes.budget,
            times=sizes.times_budget,
            value_bytes=sizes.value_bytes,
            accesses=sizes.accesses,
        )
        return [
            Figure(
                f"{state}: resident memory at its peak, against the budget",
                result["grown"] / sizes.budget,
                at_most=1.25,
            ),
            Figure(f"{state}: keys read and written at random", result["accessed"], "records/s"),
            Figure(f"{state}: keys filled", result["filled"], "records/s"),
        ]

    def incremental(self) -> list[Figure]:
        """Measure checkpoints, each after a hundredth of all keys, chosen at random, has changed."""
        what = f"checkpoint after 1 % of {self._sizes.kept_keys:_} keys changed".replace("_", " ")
        figures = []
        for backend in BACKENDS:
            full, *later = self._checkpoints(backend)
            shares = [new / full for new in later]
            is_judged = backend == "rocksdb"
            figures += [
                Figure(
                    f"{what}, {backend}: bytes copied against the full one, on average",
                    statistics.mean(shares),
                    at_most=0.15 if is_judged else None,
                ),
                Figure(f"{what}, {backend}: bytes copied by the first", shares[0]),
                Figure(f"{what}, {backend}: the most bytes of {len(shares)} in a row", max(shares)),
                Figure(f"full checkpoint of as many keys, {backend}", full / _MB, "MB"),
            ]
        return figures

    def rescale(self) -> list[Figure]:
        """Measure all subtasks one after the other in one process, until the last one's state can be read."""
        sizes = self._sizes
        figures = []
        for backend in BACKENDS:
            self._checkpoints(backend)
            same, more = [], []
            for _ in range(sizes.rescales):
                same.append(self._restore(backend, sizes.parallelism))
                more.append(self._restore(backend, 3 * sizes.parallelism))
            what = f"restore of {sizes.kept_keys:_} keys from {sizes.parallelism} subtasks".replace("_", " ")
            in_turn, slowest = ((_median(sum, same), _median(sum, more)), (_median(max, same), _median(max, more)))
            figures += [
                Figure(
                    f"{what}, {backend}: {3 * sizes.parallelism} against {sizes.parallelism}, one after the other",
                    in_turn[1] / in_turn[0],
                    at_most=1.3,
                ),
                Figure(f"{what}, {backend}: the slowest subtask against that at the same", slowest[1] / slowest[0]),
                Figure(f"{what}, {backend}: the same, one after the other", in_turn[0], "s"),
            ]
        return figures

    def serializers(self) -> list[Figure]:
        rows = self._sides.run("serializers", "serializers", values=self._sizes.values, rounds=self._sizes.value_rounds)
        return [Figure(**row) for row in rows]

    def _checkpoints(self, backend: str) -> list[int]:
        """Return the bytes written by a full checkpoint and by those that build on it; their files stay."""
        sizes = self._sizes
        if backend not in self._written:
            self._written[backend] = self._sides.run(
                "write_state",
                f"checkpoints of {sizes.kept_keys} keys on {backend}",
                directory=str(self._directory / f"kept-{backend}"),
                backend=backend,
                keys=sizes.kept_keys,
                changed=sizes.kept_keys // 100,
                checkpoints=1 + sizes.kept_checkpoints,
                parallelism=sizes.parallelism,
            )["bytes"]
        return self._written[backend]

    def _restore(self, backend: str, parallelism: int) -> list[float]:
        """Return the seconds that each subtask takes."""
        result = self._sides.run(
            "restore_state",
            f"restore in {parallelism} subtasks on {backend}",
            directory=str(self._directory / f"kept-{backend}"),
            backend=backend,
            keys=self._sizes.kept_keys,
            parallelism=parallelism,
        )
        return list(result["each"])


def _median(taken: Callable[[list[float]], float], restores: Sequence[list[float]]) -> float:
    return statistics.median(map(taken, restores))
