"""The local engine moves records as Spark does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.testing import MemoryStorage
from checkdam.testing.local_job import LocalJob
from checkdam.testing.scripted_source import ScriptedSource
from checkdam.testing.trouble import Step, Trouble, kill_slot
from checkdam.types.type_info import type_info


@pytest.mark.parametrize(("joins_batches", "count"), [(True, 1), (False, 2)])
def test_what_two_sources_send_to_a_subtask_arrives_in_one_batch_unless_a_test_wants_it_apart(
    joins_batches: bool, count: int
) -> None:
    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        other = environment._source("other", ScriptedSource((("b",),)), type_info(str))
        stream.union(other).key_by(lambda word: word, key_type=str).reduce(lambda kept, new: new).uid("last").print()

    job = LocalJob(build, [["a"]], MemoryStorage(), parallelism=1, joins_batches=joins_batches)
    heard = job.run()

    assert job._target.engine is not None
    last_level = job._target.engine.slots[0]._last_level
    assert last_level is not None
    assert [batch.num_rows for batch in last_level[2]] == [2 // count] * count
    assert sorted(heard.printed_lines) == ["a", "b"]


@dataclass
class Account:
    amount: int


def test_records_that_a_function_has_changed_come_again_as_they_were() -> None:
    def raised(account: Account) -> Account:
        account.amount += 1
        return account

    def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        stream.map(raised).map(lambda account: account.amount, output_type=int).print()

    killed = Trouble(Step.BEFORE_LEVEL, kill_slot(), number=1)
    heard = LocalJob(build, [[Account(1)]], MemoryStorage(), parallelism=1, troubles=[killed]).run()

    assert len(heard.restarts) == 1
    assert heard.printed_lines == ["2"]
