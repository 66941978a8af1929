"""Locks in a forked child: a thread that the child does not have may have held them, so they are made anew."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something with locks or threads of its own."""

    def renew(self) -> None:
        """Make locks and threads anew. Called in a child, before it does anything else."""
        ...


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(renewable: Renewable) -> None:
    """Call `renew` in every child that this process forks from now on, as long as the object exists."""
    _renewables.add(renewable)


def _renew_all() -> None:
    for renewable in list(_renewables):
        renewable.renew()


os.register_at_fork(after_in_child=_renew_all)
