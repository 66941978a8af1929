"""Runs in a Spark worker process: keeps PySpark from searching all of its memory for cycles after every task.

PySpark's daemon does so to free what a task has left behind. Nearly all objects in a worker are modules, functions and
classes, though, which live as long as the process; a search among them takes longer than a small task.
"""

from __future__ import annotations

import gc

_is_done = False


def exempt_modules_from_search() -> None:
    """Exempt all objects that exist now from searches for cycles; later calls do nothing.

    Called in the first task of a worker, which by then has imported what it needs.
    """
    global _is_done
    if not _is_done:
        _is_done = True
        gc.collect()
        gc.freeze()
