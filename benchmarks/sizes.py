"""The sizes of the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sizes:
    """Records, keys and epochs. The first epochs, in which the JVM still compiles, are left out."""

    keys: int = 100_000
    many_keys: int = 1_000_000
    records: int = 500_000
    first_epochs: int = 6
    epochs: int = 9
    rounds: int = 2
    slow_epochs: tuple[int, ...] = (20_000, 50_000, 500_000)  # of the slow peer; those of full size count
    counted_epochs: Mapping[int, int] = field(  # by records of an epoch, which epochs beside Flink have
        default_factory=lambda: {4_000_000: 3, 1_000_000: 4, 500_000: 6, 100_000: 10}
    )
    long_first_epochs: int = 2  # of the largest size
    short_first_epochs: tuple[int, ...] = (20_000,) * 30  # before those: the JVM also compiles what plans an epoch
    durable_records: int = 1_000_000  # of an epoch that takes about a second, like Flink's checkpoint interval
    pyflink_counted: tuple[int, ...] = (100_000, 200_000)
    changed: int = 10_000
    checkpoints: int = 40
    small_records: int = 10
    small_first_epochs: int = 12
    small_epochs: int = 25
    restores: int = 3
    latency_records: int = 100
    latency_first_records: int = 15
    latency_seconds_between: float = 0.23

    # Every kind of state. The peer is slow, so both sides have epochs of this smaller size.
    kind_records: int = 200_000
    slow_kind_epochs: tuple[int, ...] = (20_000, 200_000)
    maps: int = 2_000
    entries: int = 100  # of a map
    alone_epochs: int = 5  # without Spark; the first is left out

    # State larger than its memory.
    budget: int = 64 << 20
    times_budget: int = 10
    value_bytes: int = 400
    accesses: int = 300_000

    # Checkpoints and restores of large state.
    kept_keys: int = 2_000_000
    kept_checkpoints: int = 10  # that build on the full one
    parallelism: int = 2
    rescales: int = 5
    values: int = 10_000  # with which serializers are timed
    value_rounds: int = 40

    # Windows. The peer of session windows is slow, so both sides have epochs of this smaller size.
    window_seconds: int = 10  # of event time in an epoch
    pyflink_epochs: tuple[int, ...] = (100_000, 500_000)  # those of full size count
    session_first_epochs: tuple[int, ...] = (20_000, 100_000)
    session_records: int = 100_000
    sliding_keys: int = 1_000
    sliding_records: int = 100_000
    sliding_epochs: int = 4  # the first is left out

    # The web page.
    page_checkpoints: int = 200
    page_rounds: int = 7

    # Asynchronous calls.
    async_calls: int = 300_000  # of an epoch
    async_epochs: int = 4  # the first is left out


FULL = Sizes()

QUICK = Sizes(
    keys=2_000,
    many_keys=20_000,
    records=10_000,
    first_epochs=2,
    epochs=3,
    rounds=1,
    slow_epochs=(500, 10_000),
    counted_epochs={40_000: 1, 10_000: 1, 5_000: 1},
    long_first_epochs=1,
    short_first_epochs=(1_000,),
    durable_records=20_000,
    pyflink_counted=(500, 1_000),
    changed=200,
    checkpoints=8,
    small_first_epochs=3,
    small_epochs=5,
    restores=1,
    latency_records=5,
    latency_first_records=2,
    kind_records=5_000,
    slow_kind_epochs=(500, 5_000),
    maps=100,
    entries=20,
    alone_epochs=2,
    budget=16 << 20,
    accesses=20_000,
    kept_keys=50_000,
    kept_checkpoints=3,
    rescales=1,
    values=500,
    value_rounds=3,
    pyflink_epochs=(500, 10_000),
    session_first_epochs=(500,),
    session_records=2_000,
    sliding_keys=50,
    sliding_records=1_000,
    sliding_epochs=2,
    page_rounds=1,
    async_calls=5_000,
    async_epochs=2,
)
"""Shows that everything runs; its figures mean nothing."""
