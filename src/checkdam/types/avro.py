"""Values in Avro's binary form: schema checks, encoding and decoding, and schema resolution.

Needs the library fastavro (`pip install "checkdam[avro]"`). A schema may come from a snapshot, so it is untrusted
input.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from checkdam.errors import JobGraphError, StateNotRestorableError
from checkdam.types.type_info import Codec, Kind, TypeInfo, type_info

_MOST_TEXT = 1 << 20
_MOST_DEPTH = 100
_MOST_EMPTY = 1000  # parts of one value that take no bytes
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL = ("logicalType", "precision", "scale")


def avro_type(schema: str, hint: Any = dict) -> TypeInfo:
    """Return the type of values with this schema, given as JSON text.

    Raises:
        ValueError: it is not a schema, or its values could take far more memory than their encoded bytes.
        JobGraphError: fastavro is not installed.
    """
    parsed = _parsed(schema)
    name = parsed["name"] if isinstance(parsed, dict) and "name" in parsed else "value"
    form = type_info(bytes)
    codec = Codec(partial(_encoded, schema), partial(_decoded, schema))
    return TypeInfo(Kind.AVRO, f"avro[{name}]", form.arrow_type, hint, form=form, codec=codec, avro=schema)


def schema_text(schema: Any) -> str:
    """Return a user's schema as text; equal schemas give equal text."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError:
            schema = str(schema)  # a bare name, such as "string"
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _library() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise JobGraphError(
            "an Avro schema needs the library fastavro, which is not installed", hint='pip install "checkdam[avro]"'
        ) from error
    return fastavro


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    library = _library()
    if len(schema) > _MOST_TEXT:
        raise ValueError("the schema is too large")
    written = json.loads(schema)
    _check_depth(written, _MOST_DEPTH)
    try:
        parsed = library.parse_schema(written)
    except Exception as error:  # fastavro's errors have no common class
        raise ValueError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    try:
        _check_sizes(parsed, _Names(parsed))
    except RecursionError as error:  # through references: the text itself is not that deep
        raise ValueError("it is nested too deeply") from error
    return parsed


@lru_cache(maxsize=256)
def _may_be_deep(schema: str) -> bool:
    """Return whether values can be nested deeper than the schema's text: it is recursive or very deep."""
    parsed = _parsed(schema)
    try:
        return _height(parsed, _Names(parsed), {}, _MOST_DEPTH) > _MOST_DEPTH
    except RecursionError:
        return True


def _height(node: Any, names: _Names, known: dict[str, int], left: int) -> int:
    """Return how deeply the types are nested.

    Raises:
        RecursionError: deeper than `left`.
    """
    if not left:
        raise RecursionError
    node = names(node)
    name = node.get("name") if isinstance(node, dict) else None
    if name in known:
        return known[name]
    height = 1 + max((_height(each, names, known, left - 1) for each in _inside(node)), default=0)
    if name is not None:
        known[name] = height
    return height


def _check_depth(node: Any, left: int) -> None:
    if not left:
        raise ValueError("it is nested too deeply")
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _check_depth(each, left - 1)


class _Names:
    """The named types of a schema, for resolving references."""

    def __init__(self, parsed: Any) -> None:
        self._named: Mapping[str, Any] = parsed.get("__named_schemas", {}) if isinstance(parsed, dict) else {}
        for each in parsed if isinstance(parsed, list) else ():
            if isinstance(each, dict):
                self._named = {**self._named, **each.get("__named_schemas", {})}

    def __call__(self, node: Any) -> Any:
        """Return the type that a reference names; return any other node as it is."""
        return self._named.get(node, node) if isinstance(node, str) else node


def _kind(node: Any) -> str:
    if isinstance(node, list):
        return "union"
    return str(node["type"] if isinstance(node, dict) else node)


def _inside(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        yield from node
    elif isinstance(node, dict):
        yield from (each["type"] for each in node.get("fields", ()))
        yield from (node[part] for part in ("items", "values") if part in node)


def _nodes(node: Any) -> Iterator[Any]:
    """Yield every type of a schema where it is defined."""
    yield node
    for each in _inside(node):
        yield from _nodes(each)


def _check_sizes(parsed: Any, names: _Names) -> None:
    """Refuse schemas by which a few bytes could decode to an unbounded number of values."""
    known: dict[str, int] = {}
    if any(_empty_parts(each, names, known) > _MOST_EMPTY for each in _nodes(parsed)):
        raise ValueError(f"a value has more than {_MOST_EMPTY} parts that take no bytes")
    for each in _nodes(parsed):
        if isinstance(each, dict) and _kind(each) == "array" and _is_empty(each["items"], names):
            raise ValueError("an array of elements that take no bytes")


def _empty_parts(node: Any, names: _Names, known: dict[str, int]) -> int:
    """Return how many values can be decoded without reading a byte, counting records and their fields."""
    node = names(node)
    if not _is_record(node):
        return int(_is_empty(node, names))
    name = node["name"]
    if name not in known:
        known[name] = _MOST_EMPTY + 1  # while it is being counted: a type that contains itself has no end
        known[name] = 1 + sum(_empty_parts(each, names, known) for each in _inside(node))
    return known[name]


def _is_record(node: Any) -> bool:
    return _kind(node) in ("record", "error")


def _is_empty(node: Any, names: _Names) -> bool:
    node = names(node)
    if _is_record(node):
        return all(_is_empty(each, names) for each in _inside(node))
    return _kind(node) == "null" or (_kind(node) == "fixed" and int(node["size"]) < 1)


def _encoded(schema: str, value: Any) -> bytes:
    """Encode a value.

    Raises:
        TypeError: the value does not match the schema.
    """
    library, parsed = _library(), _parsed(schema)
    buffer = io.BytesIO()
    try:
        if _may_be_deep(schema):
            _check_depth(value, _MOST_DEPTH)
        library.validation.validate(value, parsed, strict=True)
        library.schemaless_writer(buffer, parsed, value, strict_allow_default=True)
    except Exception as error:
        raise TypeError(f"it does not match the Avro schema: {' '.join(str(error).split())[:200]}") from error
    return buffer.getvalue()


def _decoded(schema: str, data: bytes) -> Any:
    return _read(schema, None, data)


def _read(writer: str, reader: str | None, data: bytes) -> Any:
    """Decode a value.

    Raises:
        StateNotRestorableError: the bytes do not match the schema.
    """
    stream = io.BytesIO(data)
    read = _python_reader() if _may_be_deep(writer) else _library().schemaless_reader
    try:
        value = read(stream, _parsed(writer), None if reader is None else _parsed(reader))
    except Exception as error:
        raise StateNotRestorableError(
            f"bytes do not match the Avro schema: {type(error).__name__}: {error}",
            hint="Declare the schema under which the state was written.",
        ) from error
    if stream.tell() != len(data):
        raise StateNotRestorableError("there are bytes after the end of an Avro value")
    return value


def _python_reader() -> Any:
    """Read with fastavro's pure Python code: its C reader crashes the process on deeply nested values."""
    from fastavro import _read_py

    return _read_py.schemaless_reader


def resolved(writer: str, reader: str, value: Any) -> Any:
    """Convert a value of the writer's schema to the reader's, by Avro's rules of schema resolution."""
    return _read(writer, reader, _encoded(writer, value))


def problems(writer: str, reader: str) -> list[str]:
    """Return why some values of the writer's schema cannot be read with the reader's; empty if all can."""
    old, new = _parsed(writer), _parsed(reader)
    resolution = _Resolution(_Names(old), _Names(new))
    resolution.check(old, new, "")
    return resolution.problems


class _Resolution:
    """Compares two schemas side by side, as Avro's specification resolves them."""

    def __init__(self, old: _Names, new: _Names) -> None:
        self.problems: list[str] = []
        self._old, self._new = old, new
        self._seen: set[tuple[str, str]] = set()

    def check(self, old: Any, new: Any, path: str) -> None:
        old, new = self._old(old), self._new(new)
        if _kind(old) == "union":
            for branch in old:  # any branch may be stored
                self.check(branch, new, path)
        elif _kind(new) == "union":
            if not any(self._fits(old, branch) for branch in new):
                self._refuse(path, old, new, "none of its branches takes it")
        else:
            self._check_plain(old, new, path)

    def _fits(self, old: Any, new: Any) -> bool:
        trial = _Resolution(self._old, self._new)
        trial._seen = set(self._seen)
        trial.check(old, new, "")
        if trial.problems:
            return False
        # Not visited again: records that refer to each other twice would double the work at each level.
        self._seen = trial._seen
        return True

    def _check_plain(self, old: Any, new: Any, path: str) -> None:
        was, becomes = _kind(old), _kind(new)
        if _logical(old) != _logical(new):
            self._refuse(path, old, new, "of another logical type")
        elif was != becomes:
            if becomes not in _PROMOTED.get(was, ()):
                self._refuse(path, old, new, "")
        elif was == "array":
            self.check(old["items"], new["items"], f"{path}[]")
        elif was == "map":
            self.check(old["values"], new["values"], f"{path}{{value}}")
        elif was in _NAMED:
            self._check_named(old, new, path)

    def _check_named(self, old: Any, new: Any, path: str) -> None:
        pair = (old["name"], new["name"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        names = {_bare(each) for each in (new["name"], *new.get("aliases", ()))}
        if _bare(old["name"]) not in names:
            self._refuse(path, old, new, f'give it aliases: ["{old["name"]}"]')
        elif _kind(old) == "fixed":
            if old["size"] != new["size"]:
                self._refuse(path, old, new, "of another size")
        elif _kind(old) == "enum":
            lost = [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]
            if lost and "default" not in new:
                self._refuse(path, old, new, f"it has no symbol {', '.join(lost)} and no default")
        else:
            self._check_fields(old, new, path)

    def _check_fields(self, old: Any, new: Any, path: str) -> None:
        held = {field["name"]: field["type"] for field in old["fields"]}
        for field in new["fields"]:
            at = f"{path}.{field['name']}" if path else field["name"]
            source = next((name for name in (field["name"], *field.get("aliases", ())) if name in held), None)
            if source is not None:
                self.check(held[source], field["type"], at)
            elif "default" not in field:
                self.problems.append(f'field "{at}" is new and has no default')

    def _refuse(self, path: str, old: Any, new: Any, why: str) -> None:
        where = f'field "{path}": ' if path else ""
        self.problems.append(f"{where}{_shown(old)} cannot be read as {_shown(new)}{f', {why}' if why else ''}")


def _logical(node: Any) -> tuple[Any, ...]:
    if not isinstance(node, dict) or "logicalType" not in node:
        return ()
    return tuple(node.get(each) for each in _LOGICAL)


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(node: Any) -> str:
    if isinstance(node, list):
        return f"[{', '.join(map(_shown, node))}]"
    if isinstance(node, dict):
        return str(node.get("logicalType") or node.get("name") or node["type"])
    return str(node)
