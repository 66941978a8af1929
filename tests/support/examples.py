"""How many examples property tests try: all in `make test`, a part of them in `make check`."""

from __future__ import annotations

import os

PART = "EXAMPLES_PART"
"""The environment variable that asks for one part of so many."""


def examples(number: int) -> int:
    """Return how many of this number of examples to try here."""
    return max(1, number // int(os.environ.get(PART, "1")))
