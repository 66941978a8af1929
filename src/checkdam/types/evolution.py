"""Schema evolution: whether state written under one type can be used under another, and how values are converted.

Fields of dataclasses and named tuples are matched by name, then by alias. Fields may be added with a default, removed,
moved and renamed; any type may become optional, and an Arrow type may become wider, at any depth. The name of a class
does not matter.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from checkdam.errors import StateNotRestorableError
from checkdam.types.avro import problems, resolved
from checkdam.types.hints import PickleType
from checkdam.types.serializers import serializer_from_spec
from checkdam.types.type_info import COMPOUND, Kind, TypeInfo, optional_of

Convert = Callable[[Any], Any]


class Compatibility(Enum):
    AS_IS = "restored as is"
    MIGRATES = "migrates"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True)
class TypeDifference:
    """One difference between two types: `path` is its location ("" is the type itself), `effect` the consequence.

    `old` and `new` name the types there, None where there is none. `remedy` says what the user can do if the
    difference `breaks`. If it `merges`, two distinct values may become equal.
    """

    path: str
    old: str | None
    new: str | None
    effect: str
    breaks: bool = False
    remedy: str = ""
    merges: bool = False

    def __str__(self) -> str:
        where = f'field "{self.path}": ' if self.path else ""
        types = {(True, True): f"{self.old} became {self.new}", (True, False): f"was {self.old}"}
        of = types.get((self.old is not None, self.new is not None), f"is {self.new}")
        return f"{where}{of}, {self.effect}" if self.effect else f"{where}{of}"


@dataclass(frozen=True)
class Verdict:
    """The result of comparing stored state of an old type with the new type.

    AS_IS: the stored bytes are valid for the new type. MIGRATES: decode them with `serializer_from_spec(old)`, then
    `convert` each value to the new type. INCOMPATIBLE: neither; `reason` and `hint` are shown to the user.
    """

    kind: Compatibility
    differences: tuple[TypeDifference, ...] = ()
    convert: Convert | None = dataclasses.field(default=None, compare=False)

    @property
    def reason(self) -> str:
        """The differences that decide the result, in one line."""
        deciding = [each for each in self.differences if each.breaks] or self.differences
        return "; ".join(map(str, deciding))

    @property
    def hint(self) -> str:
        """What the user can do about an incompatible type; "" if nothing."""
        return " ".join(dict.fromkeys(each.remedy for each in self.differences if each.breaks and each.remedy))


def compare(old: str, new: TypeInfo) -> Verdict:
    """Compare the durable type `old` of stored state with the type `new` that the job declares.

    Raises:
        StateNotRestorableError: the old text cannot be parsed.
    """
    return compare_types(serializer_from_spec(old).type, new)


def compare_types(old: TypeInfo, new: TypeInfo) -> Verdict:
    """Compare like `compare`, with an old type that is already parsed."""
    comparison = _Comparison()
    convert = comparison.values(old, new, "")
    differences = tuple(comparison.differences)
    if any(each.breaks for each in differences):
        return Verdict(Compatibility.INCOMPATIBLE, differences)
    if differences:
        return Verdict(Compatibility.MIGRATES, differences, convert or _same)
    return Verdict(Compatibility.AS_IS)


@contextmanager
def restoring_value(which: str) -> Iterator[None]:
    """Add the state's name to errors raised while restoring its values: the user's classes may raise anything.

    Raises:
        StateNotRestorableError: in place of any other error, naming the state.
    """
    try:
        yield
    except StateNotRestorableError as error:
        raise StateNotRestorableError(f"{which}: {error.message}", hint=error.hint) from error
    except Exception as error:
        raise StateNotRestorableError(
            f"{which}: a stored value cannot be converted to the new type: {type(error).__name__}: {error}",
            hint="Make the class accept the values that the state was written with.",
        ) from error


def _same(value: Any) -> Any:
    return value


class _Comparison:
    """Compares two types side by side: collects differences and composes the conversion (None: no change)."""

    def __init__(self) -> None:
        self.differences: list[TypeDifference] = []

    def values(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        if new.kind is Kind.REGISTERED and new.form is not None:
            return self._registered(old, new, new.form, path)
        if old.kind is Kind.NONE and new.nullable:
            self._note(path, old, new, "all None")
            return None
        if old.nullable and not new.nullable:
            self._refuse(path, old, new, "which cannot hold a stored None")
            return None
        convert = self._present(old, new, path)
        if new.nullable and not old.nullable and not self._is_broken_at(path):
            self._note(path, old, new, "and keeps its values")
        return _unless_none(convert) if convert is not None and old.nullable else convert

    def _present(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        if old.kind is Kind.PICKLE and new.kind is Kind.PICKLE:
            if _bare(old) != _bare(new):
                self._refuse(path, old, new, "and pickled state is bound to its class")
            # User code runs only if the job asks for it; a type read from a snapshot never runs any.
            return pickle.loads if isinstance(new.hint, PickleType) else None
        if old.kind is Kind.ENUM:
            return self._enums(old, new, path)
        if old.kind is Kind.AVRO and new.kind is Kind.AVRO:
            return self._avro(old, new, path)
        if old.kind in COMPOUND and new.kind in COMPOUND:
            return self._compounds(old, new, path)
        if old.kind is not new.kind:
            self._refuse(path, old, new, "but its values have another type")
            return None
        if new.kind is Kind.LIST:
            item = self.values(old.fields[0][1], new.fields[0][1], f"{path}[]")
            return None if item is None else lambda value: list(map(item, value))
        if new.kind is Kind.MAP:
            return self._maps(old, new, path)
        self._scalars(old, new, path)
        return None

    def _registered(self, old: TypeInfo, new: TypeInfo, form: TypeInfo, path: str) -> Convert | None:
        """Compare forms: a registered class is stored as its form, and so was the type it replaces."""
        inner = self.values(old, optional_of(form, form.hint) if new.nullable else form, path)
        if new.codec is None:
            return inner
        from_ = new.codec.from_
        convert = from_ if inner is None else lambda value: from_(inner(value))
        return _unless_none(convert) if new.nullable else convert

    def _avro(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        if old.avro == new.avro:
            return None
        found = problems(old.avro, new.avro)
        if found:
            remedy = "Give new fields defaults and renamed ones aliases, or rename the state to start it empty."
            self._note(path, old, new, f"and {'; '.join(found)}", breaks=True, remedy=remedy)
        else:
            self._note(path, old, new, "resolved by its schema")
        return partial(resolved, old.avro, new.avro)

    def _enums(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        """Compare enums by member name. An old name may now be an alias of another member."""
        if new.kind is Kind.STR:
            self._note(path, old, new, "which holds the names of its members")
            return None
        if new.kind is not Kind.ENUM:
            self._refuse(path, old, new, "but its values have another type")
            return None
        known = {name: name for name in new.members}
        if new.codec is not None:
            known = {name: member.name for name, member in new.maker.__members__.items()}
        lost = [name for name in old.members if name not in known]
        if lost:
            remedy = f"Keep the member {lost[0]}, or keep its name for another one: {lost[0]} = {next(iter(known))}."
            effect = f"which has no member {', '.join(lost)}"
            self._note(path, old, new, effect, breaks=True, remedy=remedy)
        renamed = [f"{name} becomes {known[name]}" for name in old.members if known.get(name, name) != name]
        if renamed:
            kept = [known[name] for name in old.members if name in known]
            self._note(path, old, new, ", ".join(renamed), merges=len(set(kept)) < len(kept))
        return None if new.codec is None else new.codec.from_

    def _scalars(self, old: TypeInfo, new: TypeInfo, path: str) -> None:
        """Compare scalars of the same Python class, whose column widths may differ."""
        if old.arrow_type == new.arrow_type:
            return
        if _is_narrower(new.arrow_type, old.arrow_type):
            self._refuse(path, old, new, "which does not hold all of its values")
        else:
            self._note(path, old, new, "and keeps its values")

    def _maps(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        before = len(self.differences)
        key = self.values(old.fields[0][1], new.fields[0][1], f"{path}{{key}}")
        for at, each in enumerate(self.differences[before:], before):
            if each.merges:
                remedy = "Keep the fields and members of keys, or rename the state to start it empty."
                self.differences[at] = dataclasses.replace(each, breaks=True, remedy=remedy)
        value = self.values(old.fields[1][1], new.fields[1][1], f"{path}{{value}}")
        if key is None and value is None:
            return None
        of_key, of_value = key or _same, value or _same
        return lambda entries: {of_key(name): of_value(each) for name, each in entries.items()}

    def _compounds(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        if new.kind is Kind.TUPLE:
            return self._tuples(old, new, path)
        names = [name for name, _ in old.fields]
        if old.kind is Kind.TUPLE:
            if len(names) > len(new.fields):
                self._refuse(path, old, new, "which has fewer fields")
                return None
            names = [
                name for name, _ in new.fields[: len(names)]
            ]  # the elements of a tuple are identified by position alone
        if old.kind is not new.kind:
            self._note(path, old, new, "field by field")
        return self._fields(dict(zip(names, (of for _, of in old.fields), strict=True)), old, new, path)

    def _tuples(self, old: TypeInfo, new: TypeInfo, path: str) -> Convert | None:
        if old.kind is Kind.DATACLASS or len(old.fields) != len(new.fields):
            self._refuse(path, old, new, "which has another number or kind of elements")
            return None
        if old.kind is not new.kind:
            self._note(path, old, new, "element by element")
        pairs = enumerate(zip(old.fields, new.fields, strict=True))
        parts = [self.values(was, becomes, f"{path}[{i}]") for i, ((_, was), (_, becomes)) in pairs]
        if all(part is None for part in parts):
            return None
        steps = [part or _same for part in parts]
        return lambda value: tuple(step(each) for step, each in zip(steps, value, strict=True))

    def _fields(self, held: dict[str, TypeInfo], old: TypeInfo, new: TypeInfo, path: str) -> Convert:
        """Fill the new fields from the old ones by name, then alias, then default."""
        places = {name: place for place, name in enumerate(held)}
        steps: list[tuple[str, int, Convert]] = []  # new name, position in the old value, conversion
        for name, of, source in _matched(held, new):
            at = _join(path, name)
            if source is None:
                self._added(at, of, has_default=name in _defaults(new))
                continue
            if source != name:
                self._note(at, held[source], of, f'renamed from "{source}"')
            steps.append((name, places[source], self.values(held[source], of, at) or _same))
        taken = [place for _, place, _ in steps]
        if taken != sorted(taken):
            self._note(path, old, new, "its fields in another order")
        for name, of in held.items():
            if places[name] not in taken:
                removed = TypeDifference(_join(path, name), of.name, None, "removed with its values", merges=True)
                self.differences.append(removed)
        if old.kind is not Kind.DATACLASS:
            return _builder(new, steps)
        names = list(held)
        return _builder(new, [(name, names[place], step) for name, place, step in steps])

    def _added(self, path: str, of: TypeInfo, *, has_default: bool) -> None:
        if has_default:
            self.differences.append(TypeDifference(path, None, of.name, "filled with its default"))
            return
        remedy = 'Give it a default, or, if it had another name, write Annotated[<type>, Alias("<former name>")].'
        self.differences.append(
            TypeDifference(path, None, of.name, "new and without a default", breaks=True, remedy=remedy)
        )

    def _refuse(self, path: str, old: TypeInfo, new: TypeInfo, why: str) -> None:
        what = f'the type of field "{path}"' if path else "the type"
        remedy = f"Keep {what} as {old.name}, or rename the state to start it empty."
        self._note(path, old, new, why, breaks=True, remedy=remedy)

    def _note(
        self,
        path: str,
        old: TypeInfo,
        new: TypeInfo,
        effect: str,
        *,
        breaks: bool = False,
        remedy: str = "",
        merges: bool = False,
    ) -> None:
        self.differences.append(TypeDifference(path, old.name, new.name, effect, breaks, remedy, merges))

    def _is_broken_at(self, path: str) -> bool:
        return any(each.breaks and each.path == path for each in self.differences)


def _matched(held: dict[str, TypeInfo], new: TypeInfo) -> list[tuple[str, TypeInfo, str | None]]:
    """Return each new field with the old field that fills it. An old field still in use by name matches no alias."""
    own = {name for name, _ in new.fields}
    free = [name for name in held if name not in own]
    matched: list[tuple[str, TypeInfo, str | None]] = []
    for position, (name, of) in enumerate(new.fields):
        source = name if name in held else None
        if source is None and new.aliases:
            source = next((alias for alias in new.aliases[position] if alias in free), None)
            if source is not None:
                free.remove(source)
        matched.append((name, of, source))
    return matched


def _defaults(of: TypeInfo) -> dict[str, Any]:
    """Return the fields that need no stored value, with their default for a named tuple."""
    if of.maker is dict:  # TypedDict fields have no defaults, but may be None
        return {name: None for name, each in of.fields if each.nullable}
    if of.maker is tuple:
        return {}
    if of.kind is Kind.DATACLASS:
        return {f.name: None for f in dataclasses.fields(of.maker) if _has_default(f)}
    if hasattr(of.maker, "__row_schema__"):  # DataFrame columns have no defaults, but may be null
        return {name: None for name, each in of.fields if each.nullable}
    return dict(of.maker._field_defaults)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field of a dataclass has a default.

    Compares by class: a class sent by cloudpickle has its own MISSING, which is not `dataclasses.MISSING`.
    """
    missing = type(dataclasses.MISSING)
    return not (isinstance(field.default, missing) and isinstance(field.default_factory, missing))


def _builder(new: TypeInfo, steps: Sequence[tuple[str, Any, Convert]]) -> Convert:
    """Return a function that builds a new compound from the old one's elements, by position or name."""
    make: Any = new.maker
    if make is dict:
        added = dict.fromkeys(_defaults(new))
        return lambda value: added | {name: step(value[place]) for name, place, step in steps}
    if new.kind is Kind.DATACLASS:
        return lambda value: make(**{name: step(value[place]) for name, place, step in steps})
    filled = {name: (place, step) for name, place, step in steps}
    make = tuple if make is tuple else make._make
    fixed = _defaults(new)
    parts = [filled[name] if name in filled else (None, _default(fixed.get(name), of)) for name, of in new.fields]
    return lambda value: make([step(None if place is None else value[place]) for place, step in parts])


def _default(default: Any, of: TypeInfo) -> Convert:
    """Return a function that gives each value its own copy of a default that is mutable."""
    return (lambda _: default) if of.is_immutable else (lambda _: copy.deepcopy(default))


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _bare(of: TypeInfo) -> str:
    return of.name.removesuffix(" | None")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_FRACTIONS = {"s": 0, "ms": 3, "us": 6, "ns": 6}  # digits of a second; Python's datetime has six


def _is_narrower(new: pa.DataType, old: pa.DataType) -> bool:
    """Return whether some value of `old`, of the same Python class, does not fit `new`."""
    is_a = pa.types
    if is_a.is_integer(new):
        lowest, highest = _bounds(old)
        return not _bounds(new)[0] <= lowest <= highest <= _bounds(new)[1]
    if is_a.is_floating(new):
        return bool(new.bit_width < old.bit_width)
    if is_a.is_decimal(new):
        return bool(new.scale < old.scale or new.precision - new.scale < old.precision - old.scale)
    if is_a.is_timestamp(new):
        return _FRACTIONS[new.unit] < _FRACTIONS[old.unit]
    return bool(is_a.is_fixed_size_binary(new))  # the old values have another size, or any size


def _bounds(of: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(of):
        return 0, 2**of.bit_width - 1
    return -(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1) - 1
