from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from checkdam import (
    BatchContext,
    HashMapStateBackend,
    JobGraphError,
    KeyedBatch,
    KeyedBatchFunction,
    KeyedProcessFunction,
    ProcessContext,
    RocksDBStateBackend,
    RuntimeContext,
    StateRequestError,
    StateTtlConfig,
    StreamExecutionEnvironment,
    UserFunctionError,
    ValueStateDescriptor,
)
from checkdam.backends.contract import StoreOwner
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.graph.operators import BatchProcessKind, KeySelector, Operator
from checkdam.ids import Attempt, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import FunctionContext, OperatorTime
from checkdam.runtime.slot.operator_processes import make_process
from checkdam.state.key_groups import KeyGroupRange
from checkdam.testing import FunctionHarness
from checkdam.types.batch import Batch
from checkdam.types.rows import to_arrow
from checkdam.types.type_info import type_info

Step = Callable[[KeyedBatch, BatchContext], Any]


class Reading(NamedTuple):
    sensor: str
    value: float


class Steps(KeyedBatchFunction[Any]):
    """Runs a function of the test."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        return self.step(batch, ctx)


def harness(step: Step, output_type: Any = int, **options: Any) -> FunctionHarness:
    given = {"record_type": Reading, "key": lambda reading: reading.sensor, **options}
    return FunctionHarness(Steps(step), output_type=output_type, **given)


def send(step: Step, *records: Reading, output_type: Any = int, **options: Any) -> list[Any]:
    with harness(step, output_type, **options) as running:
        return running.send(*records)


A, B = Reading("a", 1.0), Reading("b", 2.0)


def test_records_come_under_their_names_with_their_keys() -> None:
    running = FunctionHarness(Looks(), record_type=Reading, key="sensor")
    running.send(A, B, A)

    [looked] = running.function().seen
    assert looked == ({"sensor": ["a", "b", "a"], "value": [1.0, 2.0, 1.0]}, ["a", "b"], [0, 1, 0], 3)


class Looks(KeyedBatchFunction[int]):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        self.seen.append((batch.records.to_pydict(), batch.keys.to_pylist(), batch.key_index.tolist(), len(batch)))
        return None


@pytest.mark.parametrize(
    "produced",
    [
        lambda: {"value": np.array([1.0, 2.0]), "sensor": ["x", "y"]},
        lambda: (pa.array(["x", "y"]), np.array([1, 2])),
        lambda: pa.record_batch({"sensor": ["x", "y"], "value": [1.0, 2.0]}),
        lambda: pa.table({"value": pa.chunked_array([[1.0], [2.0]]), "sensor": ["x", "y"]}),
        lambda: (part for part in [{"sensor": ["x"], "value": [1.0]}, None, (["y"], [2.0])]),
    ],
    ids=["dict", "tuple", "record batch", "table", "generator"],
)
def test_output_may_have_several_forms(produced: Callable[[], Any]) -> None:
    assert send(lambda batch, ctx: produced(), A, output_type=Reading) == [Reading("x", 1.0), Reading("y", 2.0)]


def test_one_array_is_enough_for_one_column() -> None:
    assert send(lambda batch, ctx: np.array([3, 4]), A) == [3, 4]
    assert send(lambda batch, ctx: np.ones((1, 2)), A, output_type=list[float]) == [[1.0, 1.0]]


def test_none_and_empty_columns_are_no_output() -> None:
    assert send(lambda batch, ctx: None, A) == []
    assert send(lambda batch, ctx: np.array([], int), A) == []


@pytest.mark.parametrize(
    ("produced", "message"),
    [
        (([1], [2.0], [3]), "returned 3 columns, and .* has 2"),
        ({"sensor": ["a"]}, r"returned the columns \['sensor'\]"),
        ((["a"], [1.0, 2.0]), "different lengths"),
        (5, "process_batch returned int"),
        ((["a"], ["b"]), "Could not convert"),
        ((5, ["b"]), "returned 5 for a column"),
    ],
)
def test_output_that_does_not_fit_is_refused(produced: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=message) as refused:
        send(lambda batch, ctx: produced, A, output_type=Reading)

    assert refused.value.where == "process_batch"


def test_a_null_is_no_record() -> None:
    with pytest.raises(UserFunctionError, match="nulls"):
        send(lambda batch, ctx: pa.array([None], pa.int64()), A)


# ---- state


def counts(batch: KeyedBatch, ctx: BatchContext) -> Any:
    count = ctx.get_column_state("count", int)
    count.write(count.values + batch.count())
    return count.values


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_kept_from_batch_to_batch(backend: str) -> None:
    with harness(counts, backend=backend) as running:
        assert running.send(A, B, A) == [2, 1]
        assert running.send(B) == [2]
        assert running.states("count") == {"a": 2, "b": 2}
        assert running.send(A, Reading("c", 0.0)) == [3, 1]
        assert running.states("count") == {"a": 3, "b": 2, "c": 1}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("dtype", "value", "default", "stored"),
    [
        (int, 2**63 - 1, 7, 2**63 - 1),
        (np.int64, -5, -1, -5),
        (float, 0.5, 0.25, 0.5),
        ("f8", float("inf"), 0, float("inf")),
        (bool, True, False, True),
        ((float, 3), [1.0, 2.0, 3.5], 0.5, [1.0, 2.0, 3.5]),
        ((int, 2), [1, 2], [8, 9], [1, 2]),
    ],
)
def test_columns_have_the_type_of_their_dtype(dtype: Any, value: Any, default: Any, stored: Any, backend: str) -> None:
    def write(batch: KeyedBatch, ctx: BatchContext) -> Any:
        state = ctx.get_column_state("it", dtype, default)
        before = state.values.copy()
        state.write(value)
        return ([str(before.tolist()), str(state.values.tolist())],)

    with harness(write, output_type=str, backend=backend) as running:
        filled = np.full(np.dtype(dtype).shape, default, np.dtype(dtype).base).tolist()
        assert running.send(A) == [str([filled]), str([value])]
        assert running.states("it") == {"a": stored}
        assert type(running.state("it", "a")) is type(stored)
        again = running.restored(running.snapshot(), backend="hashmap" if backend == "rocksdb" else "rocksdb")
        assert again.send(A) == [str([value]), str([value])]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keys_are_chosen_by_a_mask(backend: str) -> None:
    def chosen(batch: KeyedBatch, ctx: BatchContext) -> Any:
        state = ctx.get_column_state("it", float)
        last = batch.last(batch.column("value"))
        state.write(last, where=last > 0)
        state.clear(where=last < 0)
        return state.exists.astype(int)

    with harness(chosen, backend=backend) as running:
        assert running.send(Reading("a", 1.0), Reading("b", 0.0), Reading("c", 3.0)) == [1, 0, 1]
        assert running.states("it") == {"a": 1.0, "c": 3.0}
        assert running.send(Reading("a", -1.0), Reading("b", -1.0), Reading("c", 0.0)) == [0, 0, 1]
        assert running.states("it") == {"c": 3.0}
        assert running.send(Reading("a", 2.0)) == [1]
        assert running.states("it") == {"a": 2.0, "c": 3.0}


def test_values_cannot_be_changed_without_write() -> None:
    def change(batch: KeyedBatch, ctx: BatchContext) -> None:
        ctx.get_column_state("it", int).values[0] = 5

    with pytest.raises(UserFunctionError, match="read-only"):
        send(change, A)


def test_an_array_may_be_used_again_after_it_was_written() -> None:
    def reuse(batch: KeyedBatch, ctx: BatchContext) -> None:
        state, values = ctx.get_column_state("it", (float, 2)), np.ones((batch.num_keys, 2))
        state.write(values)
        values[:] = 9

    with harness(reuse) as running:
        running.send(A)

        assert running.state("it", "a") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda state: state.write([0.5]), "column of int64 and was given values of float64"),
        (lambda state: state.write([1, 2]), r"an array of shape \(2,\) for 1 keys"),
        (lambda state: state.write(np.array([2**63], np.uint64)), "values of uint64"),
        (lambda state: state.write([1], where=[0]), "a mask of int64"),
        (lambda state: state.clear(where=np.ones(2, bool)), r"a mask of bool and shape \(2,\) for 1 keys"),
    ],
)
def test_what_does_not_fit_a_column_is_refused(write: Callable[[Any], None], message: str) -> None:
    with pytest.raises(UserFunctionError, match=message):
        send(lambda batch, ctx: write(ctx.get_column_state("it", int)), A)


@pytest.mark.parametrize("dtype", [str, object, np.float32, np.int32, (float, (2, 2)), "M8[s]"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(StateRequestError, match='asks for column state "it" with the dtype'):
        send(lambda batch, ctx: ctx.get_column_state("it", dtype) and None, A)


def test_a_state_has_one_dtype_and_one_default() -> None:
    def two_dtypes(batch: KeyedBatch, ctx: BatchContext) -> None:
        ctx.get_column_state("it", int)
        ctx.get_column_state("it", np.int64)
        ctx.get_column_state("it", float)

    def two_defaults(batch: KeyedBatch, ctx: BatchContext) -> None:
        ctx.get_column_state("it", int, default=1)
        ctx.get_column_state("it", int)

    with pytest.raises(StateRequestError, match="with the dtypes"):
        send(two_dtypes, A)
    with pytest.raises(StateRequestError, match="with the defaults 1 and 0"):
        send(two_defaults, A)


def test_a_column_is_of_its_batch_only() -> None:
    class Keeps(KeyedBatchFunction[int]):
        state: Any = None

        def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
            if self.state is None:
                self.state = ctx.get_column_state("it", int)
            return self.state.values

    running = FunctionHarness(Keeps(), record_type=Reading, key="sensor")
    running.send(A)

    with pytest.raises(UserFunctionError, match="used after its batch"):
        running.send(A)


class Declares(KeyedBatchFunction[int]):
    def __init__(self, descriptor: ValueStateDescriptor[Any]) -> None:
        self.descriptor = descriptor

    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(self.descriptor)

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        return ctx.get_column_state("it", int, default=3).values


def test_a_state_may_be_declared_in_open_and_its_default_has_no_effect() -> None:
    running = FunctionHarness(Declares(ValueStateDescriptor("it", int, default=5)), record_type=Reading, key="sensor")

    assert running.states("it") == {}
    assert running.send(A) == [3]


@pytest.mark.parametrize(
    "descriptor",
    [ValueStateDescriptor("it", float), ValueStateDescriptor("it", int, ttl=StateTtlConfig(timedelta(hours=1)))],
    ids=["another type", "with TTL"],
)
def test_a_state_that_was_declared_otherwise_is_refused(descriptor: ValueStateDescriptor[Any]) -> None:
    running = FunctionHarness(Declares(descriptor), record_type=Reading, key="sensor")

    with pytest.raises(StateRequestError, match=r'asks for state "it" with (type|ttl)'):
        running.send(A)


class StoresVector(KeyedProcessFunction[str, Reading, int]):
    def process_element(self, value: Reading, ctx: ProcessContext[str]) -> None:
        ctx.get_state(ValueStateDescriptor("it", list[float])).update([0.5] * int(value.value))


def test_a_vector_of_another_length_is_an_error() -> None:
    first = FunctionHarness(StoresVector(), record_type=Reading, key="sensor", output_type=int)
    first.send(Reading("a", 1.0), Reading("b", 3.0))

    second = first.restored(first.snapshot(), Steps(lambda batch, ctx: ctx.get_column_state("it", (float, 3)) and None))

    assert second.send(Reading("b", 0.0)) == []
    with pytest.raises(UserFunctionError, match=r"as a column of float64\[3\], and has other values: \[0.5\]"):
        second.send(Reading("a", 0.0))


def test_many_keys_do_not_fit_the_memory_of_rocksdb_and_are_right_all_the_same() -> None:
    keys = [Reading(f"key {number}", 0.0) for number in range(20_000)]
    options: dict[str, Any] = {"record_type": Reading, "key": "sensor", "output_type": int}
    with FunctionHarness(Steps(counts), backend=RocksDBStateBackend(memory="16mb"), **options) as running:
        for expected in (1, 2, 3):
            for part in range(0, len(keys), 5_000):
                assert set(running.send(*keys[part : part + 5_000])) == {expected}


# ---- time and declaration


def test_rows_as_many_as_records_have_their_event_times_and_others_the_latest() -> None:
    def stamps(produced: list[Any]) -> Any:
        operator = Operator(
            1, "it", BatchProcessKind(Steps(lambda batch, ctx: iter(produced))), (0,), type_info(int),
            key=KeySelector(type_info(int), None, (0,)),
        )  # fmt: skip
        owner = StoreOwner(
            OperatorUid("it"), SubtaskIndex(0), Attempt("try"), KeyGroupRange(0, 127), 128, key_type=type_info(int)
        )
        store = HashMapStateBackend().open(owner, (), None, claim=True)
        keyed = OperatorKeyedState(store, OperatorTime(), OperatorUid("it"))
        process = make_process(operator, context=FunctionContext("it", 0, 1, keyed), store=store)
        batch = Batch(type_info(int), columns=to_arrow(type_info(int), [1, 2]), timestamps=[20, 10])
        output = process(batch, batch)
        assert output is not None
        return output.timestamps

    assert stamps([np.array([1, 2])]) == [20, 10]
    assert stamps([np.array([1])]) == [20]
    assert stamps([np.array([1, 2]), np.array([1, 2, 3])]) == [20, 10, 20, 20, 20]


def test_an_unknown_output_type_is_refused() -> None:
    class Untyped(KeyedBatchFunction):
        def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
            return None

    with pytest.raises(JobGraphError, match="the output type of Untyped is not known"):
        FunctionHarness(Untyped(), record_type=Reading, key="sensor")


def test_another_function_is_refused() -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    keyed = environment.from_collection([1, 2], int).key_by(lambda number: number)

    with pytest.raises(JobGraphError, match=r"process_batch\(\) takes a KeyedBatchFunction, not the class Looks"):
        keyed.process_batch(Looks)  # type: ignore[call-overload]
