"""Which changes of a type its state survives, and what the values become."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Annotated, Any, NamedTuple

import cloudpickle
import pyarrow as pa
import pytest

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.types.evolution import Compatibility, Verdict, compare
from checkdam.types.hints import Alias, PickleType
from checkdam.types.serializers import serializer, serializer_from_spec
from checkdam.types.type_info import TypeInfo, list_of, named_tuple_type, type_info


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Line:
    a: Point
    b: Point | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Model:
    def __init__(self, weight: float) -> None:
        self.weight = weight


class Other(Model):
    pass


def _text(hint: Any) -> str:
    return serializer(type_info(hint)).spec


def _compare(old: Any, new: Any) -> Verdict:
    return compare(_text(old), type_info(new))


def _migrated(old: Any, new: Any, value: Any) -> Any:
    """The value, written under the old type by one job and read under the new one by another."""
    verdict = _compare(old, new)
    written = serializer(type_info(old)).encode_one_checked(value)
    assert verdict.kind is Compatibility.MIGRATES, verdict
    assert verdict.convert is not None
    converted = verdict.convert(serializer_from_spec(_text(old)).decode_one(written))
    of = serializer(type_info(new))
    assert of.decode_one(of.encode_one_checked(converted)) == converted
    return converted


@pytest.mark.parametrize(
    "hint",
    [
        int,
        str | None,
        list[Point],
        dict[str, Line],
        tuple[int, Pair],
        Line | None,
        PickleType(Model),
        list[float],
        None,
    ],
)
def test_an_unchanged_type_is_restored_as_is(hint: Any) -> None:
    assert _compare(hint, hint) == Verdict(Compatibility.AS_IS)


def test_the_name_of_a_class_does_not_matter() -> None:
    renamed = make_dataclass("Place", [("x", int), ("y", int)])

    assert _compare(dict[str, Point], dict[str, renamed]).kind is Compatibility.AS_IS  # type: ignore[valid-type]


def test_a_field_added_with_a_default_gets_it() -> None:
    grown = make_dataclass("Point", [("x", int), ("y", int), ("tags", list[str], field(default_factory=list))])

    one, other = (_migrated(Point, grown, Point(1, 2)) for _ in range(2))

    assert one == grown(1, 2, [])
    assert one.tags is not other.tags


def test_a_removed_field_is_dropped_and_a_moved_one_keeps_its_value() -> None:
    changed = make_dataclass("Point", [("z", int, field(default=9)), ("y", int, field(default=0))])

    assert _migrated(Point, changed, Point(1, 2)) == changed(9, 2)


def test_fields_in_another_order_keep_their_values() -> None:
    turned = make_dataclass("Point", [("y", int), ("x", int)])

    class TurnedPair(NamedTuple):
        right: str
        left: int

    assert _migrated(Point, turned, Point(1, 2)) == turned(y=2, x=1)
    assert _migrated(Pair, TurnedPair, Pair(1, "a")) == TurnedPair("a", 1)


def test_a_field_is_found_under_any_of_its_former_names() -> None:
    renamed = make_dataclass("Point", [("across", Annotated[int, Alias("horizontal"), Alias("h", "x")]), ("y", int)])

    class Renamed(NamedTuple):
        first: Annotated[int, Alias("left")]
        right: str

    assert _migrated(Point, renamed, Point(1, 2)) == renamed(1, 2)
    assert _migrated(Pair, Renamed, Pair(1, "a")) == Renamed(1, "a")


def test_a_field_that_still_has_its_name_is_nobodys_former_one() -> None:
    changed = make_dataclass(
        "Point", [("z", Annotated[int, Alias("x")], field(default=9)), ("x", int, field(default=0))]
    )

    assert _migrated(Point, changed, Point(1, 2)) == changed(z=9, x=1)


def test_aliases_are_no_part_of_the_type() -> None:
    marked = make_dataclass("Point", [("x", Annotated[int, Alias("old")]), ("y", int)])

    assert type_info(marked) == type_info(Point)
    assert _text(marked) == _text(Point)
    assert _compare(Point, marked).kind is Compatibility.AS_IS


@dataclass
class Grown:
    x: int
    y: int
    z: int = 7


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        (list[Point], list[Grown], [Point(1, 2)], [Grown(1, 2)]),
        (dict[str, Point], dict[str, Grown], {"a": Point(1, 2)}, {"a": Grown(1, 2)}),
        (tuple[int, Point], tuple[int, Grown], (5, Point(1, 2)), (5, Grown(1, 2))),
        (Point | None, Grown | None, Point(1, 2), Grown(1, 2)),
        (Point | None, Grown | None, None, None),
        (list[dict[int, Point | None]], list[dict[int, Grown | None]], [{1: None}], [{1: None}]),
        (int, int | None, 5, 5),
        (list[int], list[int | None], [1], [1]),
        (Point, Grown | None, Point(1, 2), Grown(1, 2)),
        (tuple[int, str], Pair, (1, "a"), Pair(1, "a")),
        (Pair, tuple[int, str], Pair(1, "a"), (1, "a")),
    ],
)
def test_types_migrate_at_any_depth(old: Any, new: Any, value: Any, expected: Any) -> None:
    migrated = _migrated(old, new, value)

    assert migrated == expected
    assert type(migrated) is type(expected)


def test_what_did_not_change_beside_a_change_comes_back_as_its_own_class() -> None:
    @dataclass
    class Longer:
        a: Point
        b: Point | None = None
        name: str = "line"

    assert _migrated(Line, Longer, Line(Point(1, 2), Point(3, 4))) == Longer(Point(1, 2), Point(3, 4))


@pytest.mark.parametrize(
    ("old", "new", "path", "old_type", "new_type"),
    [
        (int, str, "", "int", "str"),
        (int, float, "", "int", "float"),
        (list[int], list[str], "[]", "int", "str"),
        (dict[str, Point], dict[str, int], "{value}", "Point", "int"),
        (tuple[int, int], tuple[int, int, int], "", "tuple[int, int]", "tuple[int, int, int]"),
        (str | None, str, "", "str | None", "str"),
        (Line | None, Pair, "", "Line | None", "Pair"),
        (PickleType(Model), PickleType(Other), "", "pickle[Model]", "pickle[Other]"),
        (PickleType(Model), int, "", "pickle[Model]", "int"),
        (int, PickleType(Model), "", "int", "pickle[Model]"),
    ],
)
def test_a_type_that_cannot_take_the_values_over_is_refused_by_name(
    old: Any, new: Any, path: str, old_type: str, new_type: str
) -> None:
    verdict = _compare(old, new)

    assert verdict.kind is Compatibility.INCOMPATIBLE
    assert verdict.convert is None
    (difference,) = [each for each in verdict.differences if each.breaks]
    assert (difference.path, difference.old, difference.new) == (path, old_type, new_type)
    assert old_type in verdict.reason
    assert new_type in verdict.reason
    assert verdict.hint


def test_a_changed_field_is_named_with_its_path_and_both_types() -> None:
    changed = make_dataclass("Point", [("x", int), ("y", str)])
    new = make_dataclass("Line", [("a", changed), ("b", changed | None)])

    verdict = _compare(dict[str, Line], dict[str, new])  # type: ignore[valid-type]

    assert verdict.kind is Compatibility.INCOMPATIBLE
    assert 'field "{value}.a.y": int became str' in verdict.reason
    assert 'field "{value}.b.y": int became str' in verdict.reason


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(12, 4)),
        (pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")),
        (pa.binary(4), pa.binary()),
    ],
)
def test_an_arrow_type_may_become_wider_and_not_narrower(narrow: Any, wide: Any) -> None:
    assert _compare(narrow, wide).kind is Compatibility.MIGRATES
    refused = _compare(wide, narrow)
    assert refused.kind is Compatibility.INCOMPATIBLE
    assert type_info(narrow).name in refused.reason
    assert type_info(wide).name in refused.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.uint8(), pa.int8()),
        (pa.int8(), pa.uint64()),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.binary(4), pa.binary(8)),
    ],
)
def test_an_arrow_type_that_holds_other_values_is_refused(old: Any, new: Any) -> None:
    assert _compare(old, new).kind is Compatibility.INCOMPATIBLE
    assert _compare(list_of(type_info(old), list), list_of(type_info(new), list)).kind is Compatibility.INCOMPATIBLE


def test_types_of_one_width_by_another_layout_keep_their_values() -> None:
    assert _migrated(str, pa.large_string(), "a") == "a"


class Tagged(NamedTuple):
    left: int
    right: str
    tags: list[str] = []  # noqa: RUF012  # what users write


def test_each_value_gets_a_default_of_its_own_where_it_can_change() -> None:
    convert = _compare(Pair, Tagged).convert
    assert convert is not None

    convert((1, "a")).tags.append("x")

    assert convert((1, "a")) == Tagged(1, "a", [])


def test_a_class_that_came_by_cloudpickle_has_no_other_defaults() -> None:
    grown = make_dataclass("Point", [("x", int), ("y", int), ("z", float), ("t", int, field(default=0))])
    came = cloudpickle.loads(cloudpickle.dumps(grown))
    assert fields(came)[0].default is not MISSING, "cloudpickle keeps the sentinel: this test tells nothing"

    verdict = _compare(Point, came)

    assert [str(each) for each in verdict.differences if each.breaks] == [
        'field "z": is float, new and without a default'
    ]
    assert any(each.effect == "filled with its default" and each.path == "t" for each in verdict.differences)


def test_a_field_added_without_a_default_is_refused_with_what_to_do() -> None:
    grown = make_dataclass("Point", [("x", int), ("y", int), ("z", float)])

    verdict = _compare(Point, grown)

    assert verdict.kind is Compatibility.INCOMPATIBLE
    assert verdict.reason == 'field "z": is float, new and without a default'
    assert "Give it a default" in verdict.hint
    assert "Alias" in verdict.hint


def test_keys_of_a_dict_cannot_lose_a_field_because_two_might_become_one() -> None:
    class Left(NamedTuple):
        left: int

    class Longer(NamedTuple):
        left: int
        right: str
        more: int = 0

    assert _compare(dict[Pair, int], dict[Left, int]).kind is Compatibility.INCOMPATIBLE
    assert _migrated(dict[Pair, int], dict[Longer, int], {Pair(1, "a"): 5}) == {Longer(1, "a"): 5}


def test_a_column_added_to_rows_is_null_where_it_may_be() -> None:
    old = named_tuple_type(pa.schema([("a", pa.int64())]))
    new = named_tuple_type(pa.schema([("a", pa.int64()), ("b", pa.string())]))

    verdict = compare(serializer(old).spec, new)

    assert verdict.convert is not None
    assert verdict.convert((1,)) == new.hint(1, None)


def test_the_differences_of_a_migration_say_what_happens() -> None:
    changed = make_dataclass("Point", [("across", Annotated[int, Alias("x")]), ("z", int, field(default=0))])

    verdict = _compare(Point, changed)

    assert {(each.path, each.effect) for each in verdict.differences} == {
        ("across", 'renamed from "x"'),
        ("z", "filled with its default"),
        ("y", "removed with its values"),
    }


def test_a_type_known_by_its_text_alone_can_be_compared_with() -> None:
    old, new = _text(Pair), serializer_from_spec(_text(Pair)).type

    assert isinstance(new, TypeInfo)
    assert compare(old, new).kind is Compatibility.AS_IS


def test_a_text_of_another_version_is_refused() -> None:
    with pytest.raises(StateNotRestorableError, match="not understood"):
        compare('{"matrix":2}', type_info(int))


@pytest.mark.parametrize("names", [(), ("",), (5,)])
def test_an_alias_without_a_name_is_refused(names: tuple[Any, ...]) -> None:
    with pytest.raises(JobGraphError, match="former name"):
        Alias(*names)
