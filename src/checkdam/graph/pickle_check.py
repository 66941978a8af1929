"""Checks that user functions can be pickled to other processes, and names the part that cannot."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import cloudpickle

from checkdam.errors import JobGraphError
from checkdam.graph.operators import Operator, SinkKind, SourceKind
from checkdam.types.type_info import registered_types

_DEEPEST = 8
_MOST_ITEMS = 1000


def check_picklable(operators: Sequence[Operator]) -> None:
    """Check that all functions can be sent to slots.

    Raises:
        JobGraphError: one of the functions, or one of a registered type, holds or uses something that cannot be
            pickled; names the operator or type and that thing.
    """
    for op in operators:
        if not isinstance(op.kind, SourceKind | SinkKind):
            _check(f"operator {op.title} cannot be sent to its slots", op.kind)
        for key in (op.key, op.second_key):
            if key is not None:
                _check(f"operator {op.title} cannot be sent to its slots", key.function)
    for of, info in registered_types().items():
        _check(f"register_type({of.__name__}) cannot be sent to slots", info.codec)


def _check(what: str, sent: Any) -> None:
    failure = _failure(sent)
    if failure is None:
        return
    function = getattr(sent, "function", sent)
    path, found = _culprit(_name_of(function), function, 0)
    kind = type(found).__name__
    raise JobGraphError(
        f"{what}: {path} is of type {kind}, which cannot be pickled ({failure})",
        hint=f"Make the {kind} in open(), which every slot calls, or inside the function.",
    ) from failure


def _failure(sent: Any) -> Exception | None:
    try:
        cloudpickle.dumps(sent)
    except Exception as failure:  # noqa: BLE001  pickling runs code of the user's classes
        return failure
    return None


def _culprit(path: str, held: Any, depth: int) -> tuple[str, Any]:
    """Return the innermost object that cannot be pickled, and the path to it from the function."""
    if depth < _DEEPEST:
        for inner_path, inner in _parts(path, held):
            if inner is not held and _failure(inner) is not None:
                return _culprit(inner_path, inner, depth + 1)
    return path, held


def _parts(path: str, held: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that pickle includes with `held`, each with its path."""
    if isinstance(held, MethodType):
        yield path.rpartition(".")[0] or path, held.__self__
    elif isinstance(held, partial):
        yield from ((_name_of(each), each) for each in held.args)
    elif isinstance(held, FunctionType):
        used = inspect.getclosurevars(held)
        for name, each in (*used.nonlocals.items(), *used.globals.items()):
            yield f'"{name}", which {path} uses,', each
    elif isinstance(held, Mapping):
        yield from ((f"{path}[{key!r}]", each) for key, each in list(held.items())[:_MOST_ITEMS])
    elif isinstance(held, list | tuple | set | frozenset):
        yield from ((f"{path}[{at}]", each) for at, each in enumerate(list(held)[:_MOST_ITEMS]))
    elif isinstance(held, type):
        yield from ((f"{path}.{name}", each) for name, each in vars(held).items() if not name.startswith("__"))
    else:
        yield from ((f"{path}.{name}", each) for name, each in getattr(held, "__dict__", {}).items())
        yield type(held).__qualname__, type(held)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
