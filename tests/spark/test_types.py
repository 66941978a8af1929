"""Every type through every source, edge, state and sink: one job, restored with other slots and backend."""

from __future__ import annotations

import decimal
import enum
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkdam import (
    AvroType,
    BroadcastContext,
    BroadcastProcessFunction,
    Context,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyContext,
    RocksDBStateBackend,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
    register_type,
)
from checkdam.state_reader import Savepoint
from checkdam.types.inference import infer_type
from checkdam.types.type_info import type_info

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

    from checkdam.runtime.job_result import JobResult

pytestmark = pytest.mark.spark


class Colour(enum.Enum):
    RED = (255, 0, 0)
    BLUE = (0, 0, 255)


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    YES = "y"


class Pair(NamedTuple):
    word: str
    colour: Colour | None


@dataclass(frozen=True)
class Place:
    street: str
    number: int | None


class Money:
    """A class that only register_type can keep."""

    def __init__(self, cents: int, currency: str) -> None:
        self.cents, self.currency = cents, currency

    def __repr__(self) -> str:
        return f"Money({self.cents}, {self.currency!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


register_type(
    Money,
    to=lambda money: (money.cents, money.currency),
    from_=lambda form: Money(*form),
    schema=tuple[int, str],
    immutable=True,
)


ORDER = AvroType(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
    }
)


class Trip(TypedDict):
    where: str
    days: int


NAIVE = datetime(2024, 5, 1, 12, 30, 0, 123456)  # noqa: DTZ001  meant to be naive
AWARE = datetime(2024, 5, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))

KEYS: dict[str, tuple[Any, list[Any]]] = {
    "int": (int, [1, -(2**63)]),
    "str": (str, ["a", "\u00e9\u4e2d"]),
    "bytes": (bytes, [b"", b"\x00\xff"]),
    "float": (float, [1.5, float("inf")]),
    "bool": (bool, [True, False]),
    "datetime": (datetime, [NAIVE, AWARE, NAIVE.replace(tzinfo=UTC), datetime.min, datetime.max]),  # noqa: DTZ901
    "date": (date, [date(1, 1, 1), date(2024, 5, 1)]),
    "Decimal": (Decimal, [Decimal("1.5"), Decimal("-12345678901234567890")]),
    "Enum": (Colour, list(Colour)),
    "IntEnum": (Number, list(Number)),
    "StrEnum": (Word, list(Word)),
    "tuple": (tuple[str | None, tuple[Colour, int]], [("a", (Colour.RED, 1)), (None, (Colour.BLUE, 2))]),
    "NamedTuple": (Pair, [Pair("a", Colour.RED), Pair("b", None)]),
    "registered": (Money, [Money(150, "EUR"), Money(-1, "USD")]),
    "dataclass": (Place, [Place("Main", 1), Place("Side", None)]),
}
OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "optional": (str | None, ["a", None]),
    "list": (list[datetime | None], [[], [NAIVE, None, AWARE]]),
    "dict": (dict[Word, Number | None], [{}, {Word.YES: None}]),
    "TypedDict": (Trip, [{"where": "there", "days": 3}]),
    "Avro": (ORDER, [{"id": 1, "note": None}, {"id": 2, "note": "x"}]),
    "row": (infer_type([{"a": 1, "b": "x"}]), [{"a": 1, "b": "x"}]),
}
TYPES = KEYS | OTHERS


@dataclass
class Everything:
    number: int
    at: datetime
    local: datetime
    colour: Colour
    who: tuple[str, Word]
    word: str | None
    scores: dict[Word, list[int | None]]
    trip: Trip


EVERYTHING = [
    Everything(1, AWARE, NAIVE, Colour.RED, ("a", Word.YES), None, {Word.YES: [1, None]}, {"where": "x", "days": 1}),
    Everything(2, AWARE, NAIVE, Colour.BLUE, ("b", Word.YES), "w", {}, {"where": "y", "days": 2}),
]

ODD_NAMES = [
    {"first name": "a", "id": 1, "ID": "x", "a.b": None, "c`d": 1.5},
    {"first name": "b", "id": 2, "ID": "y", "a.b": "z", "c`d": 2.5},
]


class Remembering(KeyedProcessFunction):
    """Keeps what comes in every kind of state, and tells how often it came before, as what it was kept."""

    def __init__(self, name: str, of: Any, *, is_key: bool) -> None:
        self.name, self.of, self.is_key = name, of, is_key

    def open(self, ctx: RuntimeContext) -> None:
        self.value = ctx.get_state(ValueStateDescriptor("value", tuple[int, self.of]))  # type: ignore[name-defined]
        self.all = ctx.get_list_state(ListStateDescriptor("all", self.of))
        self.seen = ctx.get_map_state(MapStateDescriptor("seen", self.of if self.is_key else None, self.of))

    def process_element(self, value: Any, ctx: Context) -> Iterator[tuple[str, str, int]]:
        count, kept = self.value.value() or (0, value)
        assert repr(kept) == repr(value) or not self.is_key, (kept, value)
        self.value.update((count + 1, value))
        self.all.add(value)
        self.seen[value if self.is_key else None] = value
        [(map_key, found)] = self.seen.items()
        assert repr(found) == repr(value)
        assert repr(map_key) == repr(value if self.is_key else None)
        assert len(self.all.get()) == count + 1
        yield self.name, repr(value), count + 1


PATTERNS = MapStateDescriptor("patterns", None, tuple[Colour, str | None])


class Matching(BroadcastProcessFunction):
    """The founding pattern program: the latest pattern under the key None."""

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(PATTERNS).put(None, value)

    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterator[tuple[str, str, int]]:
        yield "pattern", repr(ctx.get_broadcast_state(PATTERNS).get(None)), 0


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _job(environment: StreamExecutionEnvironment, texts: str, out: Path, rows: list[Any]) -> JobResult:
    lines = environment.read_text(texts, max_files_per_epoch=1)
    told = []
    for name, (of, values) in TYPES.items():
        collected = environment.from_collection(values, None if type_info(of) == infer_type(values) else of)
        assert collected.type == type_info(of)
        made = lines.flat_map(_always(values), output_type=of)
        is_key = name in KEYS
        key: Callable[[Any], Any] = (lambda value: value) if is_key else _always(name)
        keyed = collected.union(made).key_by(key, key_type=of if is_key else str)
        remembered = keyed.process(Remembering(name, of, is_key=is_key), output_type=tuple[str, str, int])
        told.append(remembered.uid(name))
    patterns = environment.from_collection([(Colour.RED, None), (Colour.BLUE, "x")]).broadcast(PATTERNS)
    told.append(lines.connect(patterns).process(Matching(), output_type=tuple[str, str, int]).uid("patterns"))
    told[0].union(*told[1:]).print()

    everything = environment.from_collection(EVERYTHING)
    everything.sink_to_files(str(out / "json"))
    everything.sink_to_files(str(out / "parquet"), "parquet")
    everything.sink_to_files(str(out / "text"), "text")
    everything.sink_to_spark(lambda frame, _: rows.extend(frame.sort("number").collect()))
    everything.map(lambda e: e.who).key_by(lambda who: who).reduce(lambda kept, _: kept).uid("who").print()
    by_who = everything.key_by(lambda e: e.who)
    assert by_who._key is not None
    assert by_who._key.type == type_info(tuple[str, Word])
    by_who.reduce(lambda kept, _: kept).uid("by who").map(lambda e: repr(e), output_type=str).print()
    odd = environment.from_collection(ODD_NAMES).key_by(lambda row: row["first name"])
    odd.reduce(lambda kept, _: kept).uid("odd").map(lambda row: repr(row), output_type=str).print()
    return environment.execute("types")


def test_every_type_goes_through_every_source_edge_state_and_sink(jobs: Jobs) -> None:
    texts, out = jobs.texts("again"), jobs.tmp_path / "out"
    rows: list[Any] = []
    environment = jobs.environment(2, jobs.checkpoints())
    environment.set_state_backend(HashMapStateBackend())

    first = _job(environment, texts, out, rows)

    counted = Counter(line for line in jobs.watcher.shown if line.startswith("('"))
    for name, (_, values) in TYPES.items():
        for value in values:
            at = _arrived(value)
            expected = (1, 2) if name in KEYS else range(1, 2 * len(values) + 1)
            assert sum(counted[repr((name, repr(at), n))] for n in expected) == 2, (name, value)
    assert counted[repr(("pattern", repr((Colour.BLUE, "x")), 0))] == 1
    assert counted[repr(("a", Word.YES))] == 1
    shown = [_everything_arrived(each) for each in EVERYTHING]
    assert {repr(each) for each in shown} <= set(jobs.watcher.shown)
    assert set(map(repr, ODD_NAMES)) <= set(jobs.watcher.shown)
    _check_files(out, shown)
    assert [(row.number, row.colour, row.who.f1, row.scores, row.trip.days) for row in rows] == [
        (1, "RED", "YES", {"YES": [1, None]}, 1),
        (2, "BLUE", "YES", {}, 2),
    ]

    jobs.texts("more", first=1)
    environment = jobs.environment(3, jobs.checkpoints(), restore=first.last_checkpoint)
    environment.set_state_backend(RocksDBStateBackend())
    _job(environment, texts, jobs.tmp_path / "again", rows)

    counted = Counter(line for line in jobs.watcher.shown if line.startswith("('"))
    for name, (_, values) in KEYS.items():
        for value in values:
            assert counted[repr((name, repr(_arrived(value)), 3))] == 1, (name, value)
    assert counted[repr(("pattern", repr((Colour.BLUE, "x")), 0))] == 1
    _check_reader(first)


def _arrived(value: Any) -> Any:
    """Aware datetimes arrive as the same instant in UTC, and Decimals with the 18 digits of their column."""
    if isinstance(value, Decimal):
        return value.quantize(Decimal("1e-18"), context=decimal.Context(prec=38))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return [_arrived(each) for each in value] if isinstance(value, list) else value


def _everything_arrived(value: Everything) -> Everything:
    return Everything(**{**vars(value), "at": _arrived(value.at)})


def _check_files(out: Path, expected: list[Everything]) -> None:
    lines = [line for file in (out / "json").glob("part-*") for line in file.read_text().splitlines()]
    for found in map(json.loads, lines):
        assert found["at"] == "2024-05-01T10:30:00Z"
        assert found["local"] == "2024-05-01T12:30:00.123456"
        assert (found["colour"], found["who"]["f1"]) == (("RED", "YES") if found["number"] == 1 else ("BLUE", "YES"))
    assert len(lines) == 2
    texts = [line for file in (out / "text").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(texts) == sorted(map(str, expected))
    table = pa.concat_tables([pq.read_table(file) for file in (out / "parquet").glob("part-*")])
    assert table.column("local").to_pylist() == [NAIVE, NAIVE]
    assert table.column("at").to_pylist() == [AWARE, AWARE]
    assert sorted(table.column("colour").to_pylist()) == ["BLUE", "RED"]


def _check_reader(first: JobResult) -> None:
    """The state reader knows the types by their text alone: enums as names."""
    assert first.last_checkpoint is not None
    savepoint = Savepoint.load(first.last_checkpoint)
    for name in TYPES:
        state = savepoint.keyed_state(name, "seen")
        assert state.to_arrow().num_rows > 0, name
    colours = savepoint.keyed_state("Enum", "value")
    assert {kept[1] for _, kept in colours} == {"RED", "BLUE"}
    assert colours.get(Colour.RED) == colours.get("RED") == (2, "RED")
    assert {kept[1] for _, kept in savepoint.keyed_state("registered", "value")} == {(150, "EUR"), (-1, "USD")}
    moments = savepoint.keyed_state("datetime", "value")
    assert {repr(kept[1]) for _, kept in moments} == {repr(_arrived(value)) for value in KEYS["datetime"][1]}
