"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Records, keys and epochs. The first epochs, in which the JVM still compiles, are left out."""

    keys: int = 100_000
    many_keys: int = 1_000_000
    records: int = 500_000
    first_epochs: int = 7
    epochs: int = 10
    rounds: int = 2
    slow_epochs: tuple[int, ...] = (50_000, 50_000, 500_000, 500_000)  # of the slow peer; those of full size count
    changed: int = 10_000
    checkpoints: int = 40
    small_records: int = 10
    small_first_epochs: int = 15
    small_epochs: int = 40
    restores: int = 3


FULL = Sizes()

QUICK = Sizes(
    keys=2_000,
    many_keys=20_000,
    records=10_000,
    first_epochs=2,
    epochs=3,
    rounds=1,
    slow_epochs=(500, 10_000),
    changed=200,
    checkpoints=8,
    small_first_epochs=3,
    small_epochs=5,
    restores=1,
)
"""Shows that everything runs; its figures mean nothing."""
