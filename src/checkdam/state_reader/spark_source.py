"""Snapshots as a Spark data source, `spark.read.format("checkdam")`: the only module of this room that uses Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame as DataFrame  # the rest of the room imports Spark's types from here
from pyspark.sql import SparkSession as SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from checkdam.errors import UsageError
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state_reader.content import StateContent
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.savepoint_reader import Savepoint
from checkdam.state_reader.timer_states import TimerContent

FORMAT = "checkdam"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_BATCH_ROWS = 10_000
_IMPORT_SECONDS = 60
_PARTITIONS = 8  # the minimum, if there are enough key groups


def register(spark: SparkSession) -> None:
    """Register the format with a session and enable filter pushdown; both last as long as the session.

    Spark reads in Python processes of its own. On this machine they use the interpreter of this process, so that an
    environment need not be activated; elsewhere they use PYSPARK_PYTHON.

    Raises:
        UsageError: the interpreter that Spark would use has no Checkdam.
    """
    with _reading_python(spark):
        spark.conf.set(_PUSHDOWN, "true")
        spark.dataSource.register(CheckdamDataSource)


@contextmanager
def _reading_python(spark: SparkSession) -> Iterator[None]:
    """Let the format be registered with an interpreter that can read it; other functions of the session keep theirs."""
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none, and no choice
    chosen = getattr(context, "pythonExec", None)
    if context is None or chosen is None or not sys.executable or shutil.which(chosen) == sys.executable:
        yield
        return
    if not str(context.master).startswith("local"):
        _check_importable(chosen)
        yield
        return
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = chosen


def _check_importable(python: str) -> None:
    try:
        subprocess.run([python, "-c", "import checkdam"], check=True, capture_output=True, timeout=_IMPORT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(
            f'Spark runs Python functions with "{python}", which cannot import checkdam',
            hint=f"Set PYSPARK_PYTHON to an interpreter that can, here for example {sys.executable}, before the "
            "session is created.",
        ) from error


def dataframe(spark: SparkSession, content: StateContent) -> DataFrame:
    """Return a state as a DataFrame."""
    register(spark)
    reader = spark.read.format(FORMAT).option("uid", content.description.uid)
    return reader.option("state", content.description.name).load(content.path)


class CheckdamDataSource(DataSource):  # type: ignore[misc]  # Spark's types are not followed
    """One state of a checkpoint or savepoint.

    Options: `uid` and `state`; a state called "timers" means the operator's timers. `state` may be omitted if the
    operator has only one, `uid` if only one operator has state.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(spark_schema(self._content().schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        content = self._content()
        return CheckdamReader(content.path, content.description.uid, content.description.name)

    def _content(self) -> StateContent:
        path = self.options.get("path")
        if not path:
            raise UsageError(
                "no checkpoint or savepoint was named", hint='Write spark.read.format("checkdam").load("…/chk-12").'
            )
        savepoint = Savepoint.load(path)
        uid = self.options.get("uid") or _only(
            [operator.uid for operator in savepoint.operators if savepoint.states(operator.uid)],
            f'"{path}" has state of several operators',
            "uid",
        )
        name = self.options.get("state") or _only(
            [state.name for state in savepoint.states(uid)], f'operator "{uid}" has several states', "state"
        )
        return savepoint.content(uid, name)


def _only(names: Sequence[str], several: str, option: str) -> str:
    if len(names) == 1:
        return names[0]
    listed = ", ".join(f'"{name}"' for name in names)
    if not names:
        raise UsageError("the snapshot has no state")
    raise UsageError(several, hint=f'Choose one with .option("{option}", …): {listed}.')


@dataclass
class KeyGroupPartition(InputPartition):  # type: ignore[misc]
    """The key groups from `first` to `last`; for operator state, which has none, everything."""

    first: int
    last: int

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first, self.last = first, last


class CheckdamReader(DataSourceReader):  # type: ignore[misc]
    """Reads a state by ranges of key groups. With a filter on keys it reads only their key groups."""

    def __init__(self, path: str, uid: str, name: str) -> None:
        self._path, self._uid, self._name = path, uid, name
        self._key_groups: set[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Record the requested keys. Return all filters: Spark still removes the other keys of a key group."""
        content = self._content()
        if isinstance(content, KeyedState):
            for each in _asked_keys(filters, content):
                try:
                    groups = {content.key_group_of(key) for key in each}
                except UsageError:  # NaN, or NULL among others: Spark's equality does not follow key groups
                    continue
                self._key_groups = groups if self._key_groups is None else self._key_groups & groups
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        content = self._content()
        if not isinstance(content, KeyedState | TimerContent):
            return [KeyGroupPartition(0, -1)]
        if self._key_groups is not None:
            return [KeyGroupPartition(group, group) for group in sorted(self._key_groups)] or [KeyGroupPartition(0, -1)]
        each = max(1, -(-_PARTITIONS // max(1, len(content.ranges))))
        return [KeyGroupPartition(*part) for owned in content.ranges for part in _divided(owned, each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        content = self._content()
        if isinstance(content, KeyedState | TimerContent):
            assert isinstance(partition, KeyGroupPartition)
            content = content.within(KeyGroupRange(partition.first, partition.last))
        schema = spark_schema(content.schema)
        for batch in content.to_batches(_BATCH_ROWS):
            yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _content(self) -> Any:
        return Savepoint.load(self._path).content(self._uid, self._name)


def _divided(owned: KeyGroupRange, parts: int) -> Iterator[tuple[int, int]]:
    count = min(parts, len(owned))
    for part in range(count):
        first = owned.first + part * len(owned) // count
        yield first, owned.first + (part + 1) * len(owned) // count - 1


def _asked_keys(filters: Sequence[Filter], content: KeyedState) -> Iterator[list[Any]]:
    """Return the keys of each filter on keys, or of each set of filters that together name every field of a key."""
    names = [name for name, _ in content.key_type.fields]
    fields: dict[str, Any] = {}
    for each in filters:
        if isinstance(each, EqualTo) and each.attribute == ("key",):
            yield [each.value]
        elif isinstance(each, In) and each.attribute == ("key",):
            yield list(each.value)
        elif isinstance(each, EqualTo) and len(each.attribute) == 2 and each.attribute[0] == "key":
            fields[each.attribute[1]] = each.value
    if names and set(names) <= fields.keys() and content.key_type.is_compound:
        yield [content.key_of_fields(fields)]


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the nearest schema that Spark has types for."""
    return pa.schema([pa.field(each.name, _spark_type(each.type)) for each in schema])


def _spark_type(of: pa.DataType) -> pa.DataType:
    is_a = pa.types
    if is_a.is_unsigned_integer(of):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(of.bit_width, pa.decimal128(20, 0))
    if is_a.is_timestamp(of):
        return pa.timestamp("us", tz=of.tz and "UTC")
    if is_a.is_fixed_size_binary(of) or is_a.is_binary_view(of) or is_a.is_large_binary(of):
        return pa.binary()
    if is_a.is_large_string(of) or is_a.is_string_view(of) or is_a.is_dictionary(of):
        return pa.string()
    if is_a.is_date64(of):
        return pa.date32()
    if is_a.is_float16(of):
        return pa.float32()
    if is_a.is_struct(of):
        return pa.struct([pa.field(each.name, _spark_type(each.type)) for each in of])
    if is_a.is_map(of):
        return pa.map_(_spark_type(of.key_type), _spark_type(of.item_type))
    if is_a.is_list(of) or is_a.is_large_list(of):
        return pa.list_(_spark_type(of.value_type))
    return of
