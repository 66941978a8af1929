"""What a slot tells of its work: every record and byte once, and each operator's own time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.graph.operators import MapKind, Operator
from checkdam.runtime.slot import process_memory
from checkdam.runtime.slot.level import RunningLevel, RunningOperator
from checkdam.runtime.slot.messages import OperatorCounts
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.process_memory import resident_bytes
from checkdam.testing.local_job import LocalJob
from checkdam.types.type_info import type_info


def _counted(build: Any, epochs: list[list[str]], **options: Any) -> dict[str, OperatorCounts]:
    """By the operator's name, what all subtasks did in all epochs."""
    job = LocalJob(build, epochs, None, record_type=str, **options)
    names = {op.id: op.name for op in job.job().plan.operators}
    job.run()
    together: dict[str, OperatorCounts] = {}
    for stats in job.heard.epochs:
        told = [item for report in stats.reports for item in report.operators.items()]
        told += [(op, counts) for (op, _), counts in stats.source_side.items()]
        for op, counts in told:
            before = together.get(names[op], OperatorCounts())
            together[names[op]] = OperatorCounts(
                before.records_in + counts.records_in,
                before.records_out + counts.records_out,
                before.bytes_in + counts.bytes_in,
                before.bytes_out + counts.bytes_out,
                before.busy_seconds + counts.busy_seconds,
                max(before.held, counts.held, key=lambda held: held.entries),
            )
    return together


def _burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_an_operators_time_is_its_own_and_not_that_of_those_behind_it() -> None:
    def slow(word: str) -> str:
        _burn(0.02)
        return word

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        keyed = stream.key_by(lambda word: word, key_type=str)
        keyed.reduce(lambda a, b: b).uid("quick").name("quick").key_by(lambda word: word, key_type=str).reduce(
            lambda a, b: slow(b)
        ).uid("slow").name("slow").print()

    counted = _counted(build, [["a"] * 11], parallelism=1)

    assert counted["slow"].busy_seconds >= 0.2
    assert counted["quick"].busy_seconds < 0.1


class Gathers(Process):
    """Does all its work when the records of an epoch are in."""

    def pull(self) -> None:
        _burn(0.01)

    def flush(self) -> None:
        _burn(0.01)


def test_what_an_operator_does_at_the_end_of_an_epoch_is_its_time_too() -> None:
    operator = Operator(1, "gathers", MapKind(str), (), type_info(str))
    running = RunningOperator(operator, Gathers())
    level = RunningLevel({1: running}, outputs=(), wire_in=None, wire_out=None)

    list(level.flush())

    assert running.busy_seconds >= 0.02
    assert running.take_counts().busy_seconds >= 0.02
    assert running.busy_seconds == 0


def test_bytes_that_leave_one_level_arrive_at_the_next() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        first = stream.key_by(lambda word: word, key_type=str).reduce(lambda a, b: b).uid("one").name("one")
        first.key_by(lambda word: word[0], key_type=str).reduce(lambda a, b: b).uid("two").name("two").print()

    counted = _counted(build, [["ab", "ac", "b"], ["c"]])

    assert counted["one"].records_out == counted["two"].records_in == 4
    assert counted["two"].bytes_in > 0
    assert counted["one"].bytes_out >= counted["two"].bytes_in
    assert (counted["one"].held.entries, counted["two"].held.entries) != (0, 0)


def test_filtered_and_multiplied_records_are_counted_where_they_are() -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        long = stream.filter(lambda word: len(word) > 1).name("filter")
        letters = long.flat_map(list, output_type=str).name("letters")
        letters.key_by(lambda letter: letter, key_type=str).reduce(lambda a, b: b).uid("last").print()

    counted = _counted(build, [["ab", "c", "def"]])

    assert counted["script"].records_out == 3
    assert (counted["filter"].records_in, counted["filter"].records_out) == (3, 2)
    assert (counted["letters"].records_in, counted["letters"].records_out) == (2, 5)


def test_counts_start_over_with_every_epoch() -> None:
    job = LocalJob(
        lambda environment, stream: (
            stream.key_by(lambda word: word, key_type=str).reduce(lambda a, b: b).uid("r").print()
        ),
        [["a", "b"], ["c"]],
        None,
        record_type=str,
        parallelism=1,
    )

    job.run()

    received = [sum(n.records for report in e.reports for n in report.received.values()) for e in job.heard.epochs]
    assert received == [2, 1]


def test_resident_memory_is_told_or_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert resident_bytes() > 1_000_000

    monkeypatch.setattr(process_memory, "_STATM", tmp_path / "none")

    assert resident_bytes() == -1
