"""What an operator is found to ask for is what it keeps when it runs, and finding it out leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.errors import StateRequestError, UserFunctionError
from checkdam.graph.contexts import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OnTimerContext,
    ProcessContext,
    RuntimeContext,
)
from checkdam.graph.functions import AggregateFunction, CheckpointedFunction, KeyedProcessFunction, MapFunction
from checkdam.graph.operators import MapKind, Operator
from checkdam.ids import OperatorUid
from checkdam.runtime.driver.dry_open import states_of
from checkdam.runtime.driver.restore import Restored
from checkdam.runtime.driver.restore_check import Fate, check_restore
from checkdam.runtime.source_position import SourceChoices
from checkdam.state.descriptors import MapStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.mounts import mount
from checkdam.types.type_info import type_info


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: ProcessContext) -> None:
        ctx.timer_service.register_event_time_timer(5)
        ctx.timer_service.register_processing_time_timer(2**60)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterator[int]:
        yield timestamp


KEEPING: dict[str, Callable[[Any], DataStream[Any]]] = {
    "sum": lambda keyed: keyed.sum(1),
    "min": lambda keyed: keyed.min(1),
    "max": lambda keyed: keyed.max(1),
    "reduce": lambda keyed: keyed.reduce(lambda kept, new: new),
    "aggregate": lambda keyed: keyed.aggregate(Mean()),
    "timers": lambda keyed: keyed.process(Alarm(), output_type=int),
}


@pytest.mark.parametrize("case", KEEPING)
def test_what_the_runtime_keeps_of_its_own_accord_is_restored_as_is_by_an_unchanged_job(case: str) -> None:
    def build(_: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        KEEPING[case](stream.key_by(0, key_type=str)).uid("it").print()

    storage = MemoryStorage()
    job = LocalJob(build, [[("a", 1)]], storage)
    job.run()

    restored = Restored(job.checkpoint(), mount(storage), JOB_ID, claim=True)
    reports = check_restore(job.job().plan, restored, SourceChoices())

    assert reports
    assert {report.fate for report in reports} == {Fate.AS_IS}


class Telling(MapFunction):
    """Notes on itself what is called, and fails where it is told to."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.called: list[str] = []

    def open(self, context: RuntimeContext) -> None:
        self._call("open")

    def close(self) -> None:
        self._call("close")

    def map(self, value: Any) -> Any:
        return value

    def _call(self, where: str) -> None:
        self.called.append(where)
        if where in self.failing:
            raise ValueError(f"failed in {where}")


def declare(function: Any) -> None:
    operator = Operator(1, "it", MapKind(function), (0,), type_info(int), OperatorUid("it"))
    states_of(operator, {}, max_parallelism=128, is_restored=False)


def test_the_jobs_own_function_is_left_alone() -> None:
    function = Telling()

    declare(function)

    assert function.called == []


def test_a_function_that_fails_in_open_is_closed_and_the_first_failure_is_told() -> None:
    with pytest.raises(UserFunctionError, match="in open") as failure:
        declare(Telling("open", "close"))

    assert any("failed in close" in note for note in failure.value.__notes__)


class WrongDescriptor(Telling, CheckpointedFunction):
    def initialize_state(self, ctx: FunctionInitializationContext) -> None:
        ctx.operator_state_store.get_list_state(MapStateDescriptor("names", str, int))  # type: ignore[arg-type]

    def snapshot_state(self, ctx: FunctionSnapshotContext) -> None: ...


def test_a_wrong_descriptor_is_told_as_in_a_slot() -> None:
    with pytest.raises(StateRequestError, match='for operator state "names" with a MapStateDescriptor'):
        declare(WrongDescriptor())
