"""`make simulate SEEDS=10000`: runs many seeds; prints the seeds that break a promise, and one of them step by step."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time

from simulation.run import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds to run (default: 500)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="run this seed alone, and print every step of it")
    parser.add_argument("--rocksdb", type=float, default=0.0, help="share of seeds with state in RocksDB (default: 0)")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # otherwise the order of sets differs from run to run
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    if options.seed is not None:
        outcome = simulate(options.seed, rocksdb=options.rocksdb)
        _tell(outcome)
        return 0 if outcome.failure is None else 1
    logging.disable()  # killed drivers and slots have much to log
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)  # a run leaves little garbage in cycles, and to look for it takes long
    started, failed = time.perf_counter(), []
    for seed in range(options.first, options.first + options.seeds):
        outcome = simulate(seed, rocksdb=options.rocksdb)
        if outcome.failure is not None:
            failed.append(outcome)
            print(f"seed {seed}: {outcome.failure}", flush=True)  # noqa: T201
    seconds = time.perf_counter() - started
    print(f"{options.seeds - len(failed)} of {options.seeds} seeds kept every promise, in {seconds:.0f} s")  # noqa: T201
    if failed:
        print(f"repeat one with: python -m simulation --seed {failed[0].seed}")  # noqa: T201
    return 1 if failed else 0


def _tell(outcome: Outcome) -> None:
    for line in [*outcome.story, *outcome.trace]:
        print(line)  # noqa: T201
    print(f"seed {outcome.seed}: {outcome.failure or 'kept every promise'}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
