"""Which operator a thread works for: the prefix of what user code prints and logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from checkdam.graph.operators import Operator

CURRENT: ContextVar[str] = ContextVar("checkdam_operator", default="")
"""Its uid, else its name; "" outside of any. A call that is sent to an event loop takes it along."""


def label_of(operator: Operator) -> str:
    return operator.uid or operator.name


@contextmanager
def working_for(operator: Operator) -> Iterator[None]:
    """Let this thread work for an operator until the block ends."""
    before = CURRENT.set(label_of(operator))
    try:
        yield
    finally:
        CURRENT.reset(before)
