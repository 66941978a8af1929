"""Returns freed memory to the system."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

MANY: Final = 100_000
"""Work on fewer entries leaves too little freed memory to be worth a call."""


def return_freed_memory() -> None:
    """Return the memory that the C library keeps for later allocations; do nothing where it is not glibc.

    Large buffers that live for a moment leave free blocks between those that stay, which the process would keep.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
