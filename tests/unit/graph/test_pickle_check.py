"""A function that cannot be sent to a slot is refused when the job is planned, with what in it cannot."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from checkdam import KeyedProcessFunction, WatermarkStrategy, register_type
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.config import Configuration
from checkdam.errors import JobGraphError
from checkdam.graph.levels import plan_job


class Locked(KeyedProcessFunction):
    def __init__(self, held: Any) -> None:
        self.held = held

    def process_element(self, value: int, ctx: Any) -> None:
        """Keep nothing."""


def closure() -> Callable[[int], int]:
    mine = threading.Lock()

    def guarded(value: int) -> int:
        with mine:
            return value

    return guarded


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


CASES: dict[str, tuple[Callable[[DataStream[Any]], Any], str]] = {
    "an attribute": (
        lambda stream: stream.key_by(int, key_type=int).process(Locked(threading.Lock()), int).uid("it").print(),
        'operator "it" (process) cannot be sent to its slots: Locked.held is of type lock, which cannot be pickled',
    ),
    "deep inside": (
        lambda stream: stream.key_by(int, key_type=int).process(Locked({"a": [1, closure()]}), int).uid("it").print(),
        "\"mine\", which Locked.held['a'][1] uses, is of type lock",
    ),
    "a closure": (
        lambda stream: stream.map(closure(), output_type=int).uid("it").print(),
        'operator "it" (map) cannot be sent to its slots: "mine", which closure.<locals>.guarded uses, is of type lock',
    ),
    "a method": (
        lambda stream: stream.map(Locked(threading.Lock()).__eq__, output_type=int).uid("it").print(),
        "is of type",
    ),
    "a key": (
        lambda stream: stream.key_by(closure(), key_type=int).sum().uid("it").print(),
        'operator "it" (sum) cannot be sent to its slots: "mine", which closure.<locals>.guarded uses,',
    ),
    "timestamps": (
        lambda stream: stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps(closure())
        ).print(),
        "is of type",
    ),
    "a class of its own": (
        lambda stream: stream.key_by(int, key_type=int).process(Locked(Refuses()), int).uid("it").print(),
        "Locked.held is of type Refuses, which cannot be pickled (not me)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_function_that_cannot_be_pickled_is_refused_with_operator_and_cause(case: str) -> None:
    build, told = CASES[case]
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    build(environment.from_collection([1, 2]))

    with pytest.raises(JobGraphError, match=re.escape(told)):
        plan_job("job", environment._operators, parallelism=1, max_parallelism=None)


class Kept:
    """Registered with a function that cannot be sent."""


def test_functions_of_a_registered_type_that_cannot_be_pickled_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    register_type(Kept, to=lambda _: 1, from_=closure(), schema=int)
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    environment.from_collection([1, 2]).print()

    told = 'register_type(Kept) cannot be sent to slots: "mine", which closure.<locals>.guarded uses, is of type lock'
    with pytest.raises(JobGraphError, match=re.escape(told)):
        plan_job("job", environment._operators, parallelism=1, max_parallelism=None)
