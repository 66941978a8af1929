"""What a worker of Spark reports of the functions on the source side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

from checkdam.errors import SlotLostError
from checkdam.runtime.spark.task_watch import TaskWatch
from checkdam.runtime.stalls import Stall


def test_a_task_is_reported_while_it_works_and_not_while_spark_keeps_it_waiting() -> None:
    watch = TaskWatch(timedelta(hours=1))  # looks when the test does
    reports: list[Stall | None] = []
    begun, gate = threading.Event(), threading.Event()

    def bring() -> Iterator[int]:
        yield 1
        begun.set()
        gate.wait(60)
        yield 2

    produced = watch.watched("the source side", reports.append, bring())
    next(produced)
    seen = watch._look(None)  # Spark has the first batch
    assert watch._look(seen) is seen
    assert reports == []

    working = threading.Thread(target=lambda: next(produced))
    working.start()
    assert begun.wait(30)
    while not reports or reports[-1] is None:
        seen = watch._look(seen)
    gate.set()
    working.join(30)

    assert reports[0] is None  # it has moved since Spark had the first batch
    assert reports[-1].work == "the source side"
    assert "in bring\n    gate.wait(60)" in reports[-1].stack


def test_a_slot_that_is_gone_does_not_end_the_watch() -> None:
    watch = TaskWatch(timedelta(hours=1))

    def report(stall: Stall | None) -> None:
        raise SlotLostError("slot 1 does not answer")

    produced = watch.watched("the source side", report, iter([1, 2, 3]))
    next(produced)
    first = watch._look(None)
    next(produced)

    assert watch._look(first) is not first
