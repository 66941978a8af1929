"""The whole graph of a job as one DataFrame: source side, exchanges, and the calls to the slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from checkdam.errors import CheckdamError
from checkdam.graph.levels import Edge, JobPlan, Level, Partitioning
from checkdam.graph.operators import MapKind, Operator, SourceKind
from checkdam.ids import Epoch
from checkdam.runtime.exchange_rows import EDGE, TO, Wire, has_own_key, wire_before
from checkdam.runtime.failures import to_text
from checkdam.runtime.heartbeat import Heartbeat
from checkdam.runtime.logs.log_reader import slot_process
from checkdam.runtime.logs.process_logs import output_captured
from checkdam.runtime.slot.level import NO_OUTPUT
from checkdam.runtime.slot.record_check import check_text
from checkdam.runtime.slot.slot_client import SlotAddress, exchange, report_task
from checkdam.runtime.slot.source_level import source_level
from checkdam.runtime.spark.counting import Totals, tell
from checkdam.runtime.spark.slot_launcher import SlotOutput
from checkdam.runtime.spark.task_watch import task_watch
from checkdam.runtime.spark.worker_exit import end_quietly_when_cancelled
from checkdam.runtime.spark.worker_memory import exempt_modules_from_search
from checkdam.runtime.stalls import Stall
from checkdam.types.batch import Batch
from checkdam.types.output_columns import has_instants
from checkdam.types.projection import FieldRef, projection_of

EPOCH_PROPERTY = "checkdam.epoch"
"""The Spark local property with the epoch of a job's tasks."""


@dataclass(frozen=True)
class SlotsInReach:
    """How a Spark task reaches the slots of its attempt."""

    addresses: tuple[SlotAddress, ...]
    token: str
    heartbeat: Heartbeat
    output: SlotOutput | None = None

    def captured(self) -> AbstractContextManager[Any]:
        """Return the context in which what this task prints goes to the files of a slot. Called in a task."""
        if self.output is None:
            return nullcontext()
        context = TaskContext.get()
        assert context is not None
        subtask = context.partitionId()
        slot = slot_process(self.addresses[subtask % len(self.addresses)].subtask)
        return output_captured(self.output.logs, slot, subtask, self.output.marker, is_until_end=False)

    def watched(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return a wrapper that watches the task while it produces batches. Called in a task."""
        end_quietly_when_cancelled()
        context = TaskContext.get()
        assert context is not None
        address = self.addresses[context.partitionId() % len(self.addresses)]
        task = str(context.taskAttemptId())
        work = f"the source side of epoch {context.getLocalProperty(EPOCH_PROPERTY)} (Spark task {task})"
        watch = task_watch(self.heartbeat.interval)

        def report(stall: Stall | None) -> None:
            report_task(address, self.token, task, stall, self.heartbeat.timeout_seconds)

        return lambda produced: watch.watched(work, report, produced)


def job_dataframe(
    plan: JobPlan,
    session: SparkSession,
    sources: Mapping[int, DataFrame],
    reach: SlotsInReach,
    counts: Accumulator[Totals],
) -> DataFrame:
    """Build all levels over these sources; executing the result runs one epoch. Its rows go to the Spark sinks."""
    flow = _source_side(plan, session, sources, counts, reach)
    for level in plan.levels:
        wire = _wire_before(plan, level.index)
        flow = flow.repartitionById(level.parallelism, F.expr(_partition(plan, level, wire)))
        following = wire_before(plan, level.index + 1)
        schema = NO_OUTPUT if following is None else following.schema
        flow = flow.mapInArrow(_through_slot(level.index, wire.schema, reach), from_arrow_schema(schema))
    return flow


def spark_sink_rows(plan: JobPlan, flow: DataFrame, edge: Edge) -> DataFrame:
    """Return the rows of one Spark sink from the job's DataFrame, with the column names of their type."""
    wire = _wire_before(plan, len(plan.levels) + 1)
    rows = flow.filter(F.col(EDGE) == edge.id) if wire.tagged else flow
    names = [wire.schema.field(i).name for i in wire.columns[edge.id].values]
    return rows.select(*(F.col(n).alias(c.name) for n, c in zip(names, edge.type.columns, strict=True)))


def _wire_before(plan: JobPlan, level: int) -> Wire:
    wire = wire_before(plan, level)
    assert wire is not None
    return wire


def _source_side(
    plan: JobPlan,
    session: SparkSession,
    sources: Mapping[int, DataFrame],
    counts: Accumulator[Totals],
    reach: SlotsInReach,
) -> DataFrame:
    wire = _wire_before(plan, 1)
    flows = [_one_source(plan, wire, source, dataframe, counts, reach) for source, dataframe in sources.items()]
    if not flows:
        return _no_records(session, wire)
    together = flows[0]
    for flow in flows[1:]:
        together = together.unionAll(flow)
    return together


def _no_records(session: SparkSession, wire: Wire) -> DataFrame:
    """Return an empty DataFrame that Spark does not know to be empty: else it would plan no partitions, and every slot
    must be visited.
    """
    none = session.range(0, 0, 1, 1)
    return none.select(*(F.lit(None).cast(from_arrow_type(field.type)).alias(field.name) for field in wire.schema))


def _one_source(
    plan: JobPlan, wire: Wire, source: int, dataframe: DataFrame, counts: Accumulator[Totals], reach: SlotsInReach
) -> DataFrame:
    chain = _chain(plan, source)
    edges = tuple(edge for edge in wire.edges if edge.source in chain)
    # by place: names may hold any character, and Spark treats "id" and "ID" as one
    dataframe = dataframe.toDF(*(f"c{place}" for place in range(len(dataframe.columns))))
    columns = _columns_only(chain, edges, source, dataframe)
    if columns is None or wire.is_copied(edges[0]):
        run = _source_chain(chain, edges, wire, source, plan.levels[0].parallelism, counts, reach)
        return dataframe.mapInArrow(run, from_arrow_schema(wire.schema))
    [edge] = edges
    own = dict(zip(wire.columns[edge.id].values, columns, strict=True))
    if wire.tagged:
        own[0] = F.lit(edge.id)
    return dataframe.select(
        *(
            own.get(i, F.lit(None)).cast(from_arrow_type(field.type)).alias(field.name)
            for i, field in enumerate(wire.schema)
        )
    )


def _chain(plan: JobPlan, source: int) -> dict[int, Operator]:
    """Return the source and the plain functions downstream of it, in order."""
    chain: dict[int, Operator] = {}
    for operator in plan.source_side:
        if operator.id == source or any(i in chain for i in operator.inputs):
            chain[operator.id] = operator
    return chain


def _columns_only(
    chain: Mapping[int, Operator], edges: Sequence[Edge], source: int, dataframe: DataFrame
) -> list[Column] | None:
    """Return the edge's columns as Spark expressions if its path only picks fields: then no Python is needed."""
    if len(edges) != 1 or has_own_key(edges[0]):
        return None
    if edges[0].target is None and has_instants(edges[0].type):
        return None  # a naive datetime has to be converted for Spark
    known: dict[int, list[Column]] = {source: [F.col(name) for name in dataframe.columns]}
    for operator in chain.values():
        if operator.id == source:
            continue
        kind = operator.kind
        projection = None
        if isinstance(kind, MapKind) and len(operator.inputs) == 1 and operator.inputs[0] in known:
            projection = projection_of(kind.function, chain[operator.inputs[0]].output_type)
        if projection is None or projection.result_type(chain[operator.inputs[0]].output_type) != operator.output_type:
            return None  # the type differs from the fields': Python converts, and refuses what does not fit
        if operator.output_type.is_compound and not projection.is_tuple:
            return None  # one column becomes several
        inputs = known[operator.inputs[0]]
        known[operator.id] = [
            inputs[part.column] if isinstance(part, FieldRef) else F.lit(part.value) for part in projection.parts
        ]
        if len(known[operator.id]) != len(operator.output_type.columns):
            return None
    return known.get(edges[0].source)


def _source_chain(
    chain: Mapping[int, Operator],
    edges: tuple[Edge, ...],
    wire: Wire,
    source: int,
    behind: int,
    counts: Accumulator[Totals],
    reach: SlotsInReach,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # The source's input stays with the driver: a DataFrame cannot be sent to a task.
    operators = {op.id: replace(op, kind=SourceKind(None)) if op.id == source else op for op in chain.values()}
    source_type = chain[source].output_type

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        end_quietly_when_cancelled()
        exempt_modules_from_search()
        watched = reach.watched()
        try:
            with reach.captured():
                level = source_level(operators, edges, wire, behind)
                for batch in batches:
                    if batch.num_rows:
                        check_text(operators[source].name, source_type, batch)
                        yield from watched(level.bring(source, Batch(source_type, columns=batch)))
                yield from watched(level.flush())
                tell(counts, level, _partition_id() % behind)
        except CheckdamError as error:
            raise RuntimeError(to_text(error, reach.token)) from None

    return run


def _partition_id() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _partition(plan: JobPlan, level: Level, wire: Wire) -> str:
    """Return the SQL expression of a row's subtask: its address, else the target of its edge."""
    cases = [(edge, _edge_partition(plan, level, wire, edge)) for edge in wire.edges]
    if not wire.tagged:
        return cases[0][1]
    whens = " ".join(f"when {edge.id} then {expression}" for edge, expression in cases)
    by_edge = f"case {EDGE} {whens} end" if whens else "0"
    return f"coalesce({TO}, {by_edge})" if wire.controlled else by_edge


def _edge_partition(plan: JobPlan, level: Level, wire: Wire, edge: Edge) -> str:
    if edge.level != level.index or edge.partitioning in (Partitioning.FORWARD, Partitioning.BROADCAST):
        return f"pmod(spark_partition_id(), {level.parallelism})"  # behind a level, partition i is slot i
    if edge.partitioning is Partitioning.ORIGIN:
        return f"pmod(spark_partition_id(), {edge.parallelism})"
    if edge.partitioning is Partitioning.REBALANCE:  # at random: Spark cannot number rows of a streaming DataFrame
        return f"cast(floor(rand() * {edge.parallelism}) as int)"
    assert edge.key is not None
    assert edge.target is not None
    place = wire.columns[edge.id]
    positions = place.keys or tuple(place.values[i] for i in edge.key.columns or ())
    names = ", ".join(wire.schema.field(i).name for i in positions)
    groups = plan.key_groups_of(edge.target)
    return f"cast((pmod(xxhash64({names}), {groups}L) * {edge.parallelism}L) div {groups}L as int)"


def _through_slot(
    level: int, schema: pa.Schema, reach: SlotsInReach
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task of one subtask: it streams the partition through its slot and yields the results."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        end_quietly_when_cancelled()
        exempt_modules_from_search()
        context = TaskContext.get()
        assert context is not None
        epoch = Epoch(int(context.getLocalProperty(EPOCH_PROPERTY) or -1))
        address = reach.addresses[context.partitionId()]
        try:
            yield from exchange(address, reach.token, level, epoch, schema, batches)
        except CheckdamError as error:
            raise RuntimeError(to_text(error, reach.token)) from None

    return run
