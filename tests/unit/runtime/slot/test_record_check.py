"""Text of a source that is not UTF-8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.api.streams import DataStream
from checkdam.config import Configuration
from checkdam.errors import UserFunctionError
from checkdam.graph.levels import Edge, plan_job
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.level import RunningOperator, running_level
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.record_check import check_text
from checkdam.testing import ManualClock
from checkdam.types.type_info import named_tuple_type, type_info

BAD = pa.array([b"good", b"b\xffd", b"\xed\xa0\x80"]).view(pa.string())
TEXT = type_info(str)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def test_the_record_is_shown_with_bytes_for_its_text_and_what_to_do() -> None:
    with pytest.raises(UserFunctionError) as refused:
        check_text("text(in)", TEXT, batch(value=BAD))

    assert (refused.value.operator, refused.value.record) == ("text(in)", r"b'b\xffd'")
    assert "not UTF-8: 'utf-8' codec can't decode byte 0xff in position 1" in refused.value.cause
    assert 'errors="replace"' in refused.value.cause


NUMBERS = pa.array([1, 2, 3])


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (BAD, r"b'b\xffd'"),
        (BAD.cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string()), r"b'b\xffd'"),
        (pa.StructArray.from_arrays([NUMBERS, BAD], names=["n", "t"]), r"{'n': 2, 't': b'b\xffd'}"),
        (pa.ListArray.from_arrays([0, 1, 2, 3], BAD), r"[b'b\xffd']"),
        (pa.MapArray.from_arrays([0, 1, 2, 3], BAD, NUMBERS), r"[(b'b\xffd', 2)]"),
    ],
)
def test_text_is_found_in_columns_of_any_shape(column: Any, shown: str) -> None:
    records = batch(id=NUMBERS, text=column)

    with pytest.raises(UserFunctionError) as refused:
        check_text("rows", named_tuple_type(records.schema), records)

    assert refused.value.record == f"Row(id=2, text={shown})"


def test_bytes_need_not_be_text() -> None:
    check_text("rows", type_info(bytes), batch(value=BAD.cast(pa.binary())))
    check_text("rows", TEXT, batch(value=pa.array(["é", None, ""])))


def _planned(build: Callable[[DataStream[Any]], DataStream[Any]]) -> tuple[Any, Edge]:
    """Level 1 of a job as a slot has it, and the edge into it."""
    environment = StreamExecutionEnvironment(Launch(Configuration()))
    build(environment.from_collection(["a"]).name("the source")).print()
    plan = plan_job("job", environment._operators, parallelism=1, max_parallelism=None).for_slots()
    [level] = plan.levels
    operators = {op.id: RunningOperator(op, Process()) for op in level.operators}
    return running_level(plan, level, operators, EventTime(plan, ManualClock())), plan.edges[0]


def _keyed(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by(lambda line: line).map(str.upper, output_type=str)


@pytest.mark.parametrize("build", [_keyed, lambda stream: _keyed(stream.map(lambda line: line))])
def test_a_slot_checks_what_spark_alone_has_brought(build: Any) -> None:
    level, edge = _planned(build)

    with pytest.raises(UserFunctionError) as refused:
        list(level.receive(batch(**{f"e{edge.id}_0": BAD})))

    assert refused.value.operator == "the source"


def test_what_python_has_read_is_not_checked_again() -> None:
    assert _planned(lambda stream: _keyed(stream.filter(bool)))[1].unread_source is None
    assert _planned(_keyed)[1].unread_source == "the source"
