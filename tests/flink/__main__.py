"""`make test-flink COUNT=500`: runs random window jobs on Flink and on Checkdam and compares the results.

Prints seed and spec of every job whose results differ; `make test-flink SEED=17` repeats one. It also checks that the
answers kept for `make test` are still what Flink says. `--keep` writes them anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.flink.comparison import (
    KEPT_SEEDS,
    answer_or_error,
    difference,
    keep_answers,
    kept_answers,
)
from tests.flink.epoch_cuts import TIMER_OF_THE_PAST, epoch_cut_specs
from tests.flink.flink_jobs import running_on_flink
from tests.flink.job_specs import SESSION_THAT_FLINK_FORGETS, Spec, random_spec


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flink", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many jobs to run (default: 500)")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first (default: 1)")
    parser.add_argument("--seed", type=int, help="run the job of this seed alone, and print its spec and results")
    parser.add_argument("--keep", action="store_true", help="write the answers that make test compares with")
    options = parser.parse_args()
    if options.keep:
        return _keep()
    if options.seed is not None:
        return _repeat(random_spec(options.seed))
    return _compare([random_spec(seed) for seed in range(options.first, options.first + options.count)])


def _kept_specs() -> list[Spec]:
    return [*map(random_spec, KEPT_SEEDS), *epoch_cut_specs(), SESSION_THAT_FLINK_FORGETS, TIMER_OF_THE_PAST]


def _keep() -> int:
    with running_on_flink(_kept_specs()) as flink:
        keep_answers(flink.answers())
    return 0


def _repeat(spec: Spec) -> int:
    with running_on_flink([spec]) as flink:
        flinks = flink.answers()[spec["seed"]]
    _tell(json.dumps(spec))
    _tell(f"Flink: {json.dumps(flinks)}")
    checkdams = answer_or_error(spec)
    _tell(f"Checkdam: {json.dumps(checkdams)}")
    found = difference(flinks, checkdams)
    _tell(found or "no difference")
    return 1 if found else 0


def _compare(specs: Sequence[Spec]) -> int:
    began = time.monotonic()
    kept = [spec for spec in _kept_specs() if spec not in specs]
    # Each worker starts afresh: a fork of a process with threads may hang.
    workers = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    with workers, running_on_flink([*specs, *kept]) as flink:
        checkdams = workers.map(answer_or_error, specs, chunksize=5)
        flinks = flink.answers()
        seconds = time.monotonic() - began
        differing = []
        for spec, answer in zip(specs, checkdams, strict=True):
            found = difference(flinks[spec["seed"]], answer)
            if found:
                differing.append(spec["seed"])
                _tell(f"seed {spec['seed']}: {json.dumps(spec)}\n{found}")
    records = sum(len(flinks[spec["seed"]].get("results", ())) for spec in specs)
    _tell(f"{len(specs) - len(differing)} of {len(specs)} jobs have the same results ({records} records)", began)
    _tell(f"Flink took {seconds:.0f} s")
    if differing:
        _tell(f"they differ with the seeds {differing}; repeat one with: make test-flink SEED={differing[0]}")
    outdated = [seed for seed, answer in kept_answers().items() if difference(flinks[seed], answer)]
    if outdated:
        _tell(f"the kept answers are not what Flink says, for the seeds {outdated}: run python -m tests.flink --keep")
    return 1 if differing or outdated else 0


def _tell(text: str, began: float | None = None) -> None:
    after = "" if began is None else f", after {time.monotonic() - began:.0f} s"
    sys.stdout.write(f"{text}{after}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
