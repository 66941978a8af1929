"""`python -m benchmarks`: measures what the promises of speed rest on, prints a table, writes build/bench.json.

With `--all` it measures everything.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.async_calls import AsyncCalls
from benchmarks.counting import Counting
from benchmarks.durable import Durable
from benchmarks.kinds import Kinds
from benchmarks.latency import Latency
from benchmarks.measuring import Measurements
from benchmarks.page import WebPage
from benchmarks.processes import SideFailedError, Sides, remove
from benchmarks.queries import Queries
from benchmarks.report import Figure, print_table, write_json
from benchmarks.savepoints import Savepoints
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.state import State
from benchmarks.throughput import Throughput
from benchmarks.windows import Windows

HEADLINE = (
    *("counts", "durable-counts", "pyflink-counts", "ten-records", "checkpoints", "map-state", "timers", "memory"),
    *("queries", "async-calls", "windows", "pyflink-windows"),
)
"""What `make bench` measures, in a quarter of an hour."""

COMPARISONS = (
    *HEADLINE,
    *("transform-with-state", "sql", "limit", "snapshots", "restore", "map-state-on-rocksdb", "kinds"),
    *("larger-than-memory", "incremental", "rescale", "savepoint", "serializers", "latency", "web-page"),
    *("ten-records-otherwise", "queries-otherwise", "windows-on-rocksdb"),
)
_BUSY = 0.7


def main() -> int:
    options = _options()
    load = os.getloadavg()[0]
    print(f"load average {load:.2f}", file=sys.stderr)
    if load > _BUSY:
        print("warning: something else keeps this machine busy, so the figures will mislead", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # exit in a way that cleans up
    # With a longer path Checkdam's side would have no Unix sockets, and the others would.
    root = Path(tempfile.mkdtemp(prefix="b-"))
    figures: list[Figure] = []
    try:
        failures = _measure(root, options, figures)
    finally:
        remove(root)
        print_table(figures)
    is_whole = not (options.only or options.quick or failures)
    name = "bench-all" if options.all else "bench"
    path = Path("build") / f"{name if is_whole else 'bench-partial'}.json"
    write_json(figures, path)
    print(f"written to {path}", file=sys.stderr)
    for name, failure in failures.items():
        print(f"not measured: {name}: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=COMPARISONS, metavar="NAME", help=f"one of {', '.join(COMPARISONS)}"
    )
    parser.add_argument("--all", action="store_true", help="measure everything, which takes three times as long")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    return parser.parse_args()


def comparisons(sides: Sides, sizes: Sizes, inputs: Path) -> tuple[Throughput, dict[str, Callable[[], list[Figure]]]]:
    """Return every comparison by name, in the order of `COMPARISONS`, and the object that prepares some of them."""
    measurements = Measurements(sides, inputs)
    counting, throughput = Counting(measurements, sizes), Throughput(measurements, sizes)
    kinds = Kinds(measurements, sides, sizes)
    windows, queries = Windows(measurements, sides, sizes), Queries(sides, sizes, inputs)
    state, durable = State(sides, sizes, inputs), Durable(sides, sizes, inputs)
    return throughput, {
        "counts": counting.counts,
        "durable-counts": counting.durable,
        "pyflink-counts": counting.pyflink,
        "ten-records": throughput.ten_records,
        "checkpoints": throughput.checkpoints,
        "map-state": kinds.maps,
        "timers": kinds.timers,
        "memory": state.memory,
        "queries": queries.queries,
        "async-calls": AsyncCalls(sides, sizes).calls,
        "windows": windows.windows,
        "pyflink-windows": windows.against_pyflink,
        "transform-with-state": throughput.transform_with_state,
        "sql": throughput.sql,
        "limit": throughput.limit,
        "snapshots": state.snapshots,
        "restore": state.restore,
        "map-state-on-rocksdb": kinds.maps_on_rocksdb,
        "kinds": kinds.alone,
        "larger-than-memory": durable.larger_than_memory,
        "incremental": durable.incremental,
        "rescale": durable.rescale,
        "savepoint": Savepoints(sides, sizes, inputs).savepoint,
        "serializers": durable.serializers,
        "latency": Latency(sides, sizes).latency,
        "web-page": WebPage(sides, sizes).interactive,
        "ten-records-otherwise": throughput.ten_records_otherwise,
        "queries-otherwise": queries.queries_otherwise,
        "windows-on-rocksdb": windows.on_rocksdb,
    }


def _measure(root: Path, options: argparse.Namespace, figures: list[Figure]) -> dict[str, SideFailedError]:
    """Add the figures of every requested comparison. Return why others failed."""
    inputs = root / "inputs"
    inputs.mkdir()
    throughput, known = comparisons(Sides(root), QUICK if options.quick else FULL, inputs)
    wanted = options.only or (COMPARISONS if options.all else HEADLINE)
    throughput.prepare(wanted)
    failures: dict[str, SideFailedError] = {}
    for name, compare in known.items():
        if name in wanted:
            try:
                figures += compare()
            except SideFailedError as failure:
                failures[name] = failure
    return failures


if __name__ == "__main__":
    sys.exit(main())
