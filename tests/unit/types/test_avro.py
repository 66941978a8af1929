"""Values in Avro's form, by a schema that evolves as Avro says."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import cloudpickle
import msgspec
import pytest

from checkdam import AvroType, register_type
from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.state_reader.columns import column
from checkdam.types import avro
from checkdam.types.evolution import Compatibility, compare
from checkdam.types.json_values import to_json
from checkdam.types.rows import from_arrow, to_arrow
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import type_info
from checkdam.types.type_text import text_of


def record(*fields: Any, name: str = "shop.Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(*each) for each in fields], **more}


def _field(name: str, of: Any, more: Any = ()) -> dict[str, Any]:
    return {"name": name, "type": of, **dict(more)}


KIND = {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}
ORDER = record(
    ("id", "int"),
    ("kind", KIND),
    ("note", ["null", "string", "long"], {"default": None}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("next", ["null", "shop.Order"], {"default": None}),
)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
LAST = {"id": 2, "kind": "PAID", "note": 7, "at": NOON, "next": None}
FIRST = {"id": 1, "kind": "NEW", "note": "n", "at": NOON, "next": LAST}


def test_values_are_kept_in_avros_form_and_read_without_the_job() -> None:
    of = type_info(AvroType(ORDER))
    by_type = serializer(of)

    data = by_type.encode_checked([FIRST])

    assert by_type.decode(data) == [FIRST]
    assert serializer_from_spec(by_type.spec).decode(data) == [FIRST]
    assert from_arrow(of, to_arrow(of, [FIRST])) == [FIRST]
    assert compare(by_type.spec, of).kind is Compatibility.AS_IS
    assert cloudpickle.loads(cloudpickle.dumps(of)) == of
    assert to_json(LAST, of)["at"] == "2024-05-01T12:00:00+00:00"
    assert column(of, [FIRST], "it").type == "binary"
    assert type_info(AvroType(json.dumps(ORDER))) == of
    assert not of.is_immutable


@pytest.mark.parametrize("wrong", [{}, {**FIRST, "id": "1"}, {**FIRST, "more": 1}, {**FIRST, "kind": "GONE"}, 1, None])
def test_a_value_of_another_schema_is_refused(wrong: Any) -> None:
    with pytest.raises(JobGraphError, match=r"does not fit the declared type avro\[shop.Order\]"):
        serializer(type_info(AvroType(ORDER))).encode_checked([wrong])


OLD = record(("id", "int"), ("kind", KIND), ("sum", "float"), ("tags", {"type": "array", "items": "string"}))
OLD_VALUE = {"id": 1, "kind": "PAID", "sum": 1.5, "tags": ["a"]}


@pytest.mark.parametrize(
    ("new", "value"),
    [
        (record(("id", "long"), ("kind", KIND), ("sum", "double")), {"id": 1, "kind": "PAID", "sum": 1.5}),
        (record(("id", ["null", "int"]), ("extra", "string", {"default": "x"})), {"id": 1, "extra": "x"}),
        (record(("total", "float", {"aliases": ["sum"]})), {"total": 1.5}),
        (record(("id", "int"), name="Purchase", aliases=["shop.Order"]), {"id": 1}),
        (record(("tags", {"type": "array", "items": "bytes"})), {"tags": [b"a"]}),
        (record(("kind", {**KIND, "symbols": ["PAID", "SENT", "NEW"]})), {"kind": "PAID"}),
        (record(("kind", {**KIND, "symbols": ["NEW"], "default": "NEW"})), {"kind": "NEW"}),
        ([record(("id", "int")), "null"], {"id": 1}),
    ],
)
def test_state_resolves_by_the_readers_schema(new: Any, value: Any) -> None:
    old = serializer(type_info(AvroType(OLD)))
    stored = old.encode_one_checked(OLD_VALUE)

    verdict = compare(old.spec, type_info(AvroType(new)))

    assert verdict.kind is Compatibility.MIGRATES
    assert verdict.convert is not None
    assert verdict.convert(serializer_from_spec(old.spec).decode_one(stored)) == value


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (record(("id", "string")), 'field "id": int cannot be read as string'),
        (record(("sum", "int")), 'field "sum": float cannot be read as int'),
        (record(("extra", "string")), 'field "extra" is new and has no default'),
        (record(("kind", {**KIND, "symbols": ["NEW"]})), "no symbol PAID and no default"),
        (record(("id", "int"), name="Purchase"), r'give it aliases: \["shop.Order"\]'),
        (record(("tags", {"type": "array", "items": "int"})), r'field "tags\[\]": string cannot be read as int'),
        (record(("id", ["null", "string"])), "none of its branches takes it"),
        (record(("id", {"type": "int", "logicalType": "date"})), "another logical type"),
    ],
)
def test_a_schema_that_cannot_read_what_is_stored_is_refused_with_the_place(new: Any, words: str) -> None:
    verdict = compare(text_of(type_info(AvroType(OLD))), type_info(AvroType(new)))

    assert verdict.kind is Compatibility.INCOMPATIBLE
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(verdict.reason)


def test_schemas_that_hold_themselves_are_compared() -> None:
    wider = json.loads(json.dumps(ORDER).replace('"int"', '"long"'))

    assert compare(text_of(type_info(AvroType(ORDER))), type_info(AvroType(wider))).kind is Compatibility.MIGRATES
    assert compare(text_of(type_info(AvroType(wider))), type_info(AvroType(ORDER))).kind is Compatibility.INCOMPATIBLE


def test_avro_and_other_types_do_not_go_together() -> None:
    spec = text_of(type_info(AvroType(ORDER)))

    assert compare(spec, type_info(bytes)).kind is Compatibility.INCOMPATIBLE
    assert compare('"bytes"', type_info(AvroType(ORDER))).kind is Compatibility.INCOMPATIBLE


class Order:
    def __init__(self, number: int) -> None:
        self.number = number


def test_a_class_is_registered_with_an_avro_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    old = AvroType(record(("id", "int")))
    new = AvroType(record(("number", "long", {"aliases": ["id"]})))
    register_type(Order, to=lambda o: {"id": o.number}, from_=lambda form: Order(form["id"]), schema=old)
    kept = serializer(type_info(Order))
    stored = kept.encode_one_checked(Order(5))

    register_type(Order, to=lambda o: {"number": o.number}, from_=lambda form: Order(form["number"]), schema=new)
    verdict = compare(kept.spec, type_info(Order))

    assert kept.decode_one(stored).number == 5
    assert serializer_from_spec(kept.spec).decode_one(stored) == {"id": 5}
    assert verdict.kind is Compatibility.MIGRATES
    assert verdict.convert is not None
    assert verdict.convert({"id": 5}).number == 5


def _nested(depth: int) -> Any:
    return "int" if not depth else {"type": "array", "items": _nested(depth - 1)}


def _doubling(depth: int) -> Any:
    """A record of two fields of the next type, and so on: a short text, and 2 ** depth values."""
    schema = record(name="R0")
    for level in range(1, depth):
        schema = record(("left", schema), ("right", schema["name"]), name=f"R{level}")
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "fields": []},
        {"type": "nothing"},
        {"type": "array", "items": "null"},
        {"type": "array", "items": record(("a", "null"))},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        record(("a", {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}})),
        record(("a", "shop.Order")),
        _doubling(12),
        _doubling(40),
        [record(name="R0"), *(record(("a", f"R{i}"), name=f"R{i + 1}") for i in range(2000))],
        _nested(200),
        7,
        None,
    ],
)
def test_a_schema_that_is_none_or_could_take_any_memory_is_refused(schema: Any) -> None:
    with pytest.raises(JobGraphError, match="AvroType cannot be made"):
        AvroType(schema)
    with pytest.raises(StateNotRestorableError):
        serializer_from_spec(json.dumps({"avro": schema}))


@pytest.mark.parametrize("data", [b"", b"\xc4\x00", b"\xc4\x01\x02", b"\xc4\x03\x02\x00\x00", b"\xa1a"])
def test_bytes_that_are_not_of_the_schema_are_refused(data: bytes) -> None:
    of = serializer(type_info(AvroType(record(("id", "int"), ("name", "string")))))

    with pytest.raises(StateNotRestorableError):
        of.decode_one(data)


CHAIN = record(("next", ["null", "Chain"]), name="Chain")


def _chained(length: int) -> Any:
    value: Any = None
    for _ in range(length):
        value = {"next": value}
    return value


def test_values_of_a_schema_that_holds_itself_are_nested_up_to_a_bound() -> None:
    of = serializer(type_info(AvroType(CHAIN)))

    assert of.decode_one(of.encode_one_checked(_chained(90))) == _chained(90)
    with pytest.raises(JobGraphError, match="nested too deeply"):
        of.encode_one_checked(_chained(500))


def test_bytes_that_nest_values_without_end_do_not_end_the_process() -> None:
    data = msgspec.msgpack.encode(b"\x02" * 1_000_000 + b"\x00")

    with pytest.raises(StateNotRestorableError, match="RecursionError"):
        serializer_from_spec(json.dumps({"avro": CHAIN})).decode_one(data)


def test_schemas_that_refer_to_others_twice_are_compared_in_short_time() -> None:
    tree = record(("left", ["null", "new.Tree"]), ("right", ["null", "new.Tree"]), name="new.Tree")
    stored = [record(("left", "null"), ("right", "null"), name="n0.Tree")]
    for level in range(1, 40):
        below = ["null", stored[-1]["name"]]
        stored.append(record(("left", below), ("right", below), name=f"n{level}.Tree"))
    old = record(("made_of", stored), ("root", stored[-1]["name"]))

    assert avro.problems(avro.schema_text(old), avro.schema_text(record(("root", tree)))) == []


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    avro._parsed.cache_clear()
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(JobGraphError, match=r"fastavro, which is not installed") as refused:
        AvroType("string")

    assert 'pip install "checkdam[avro]"' in (refused.value.hint or "")
