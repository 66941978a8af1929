"""Derived uids of sources: computed from what a source reads, so that they do not depend on the program's order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from checkdam.graph.operators import Operator, SourceKind
from checkdam.ids import OperatorUid

_LONGEST_PLACE = 200


def with_source_uids(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators, with a uid for every source that Spark reads.

    A derived uid follows from kind and place alone: "source:text(/data/in)". Several sources of the same kind and
    place are numbered in the order of the program. A uid that the program gives to another operator is skipped.
    """
    taken = {op.uid for op in operators if op.uid is not None and not op.has_derived_uid}
    named: list[Operator] = []
    for op in operators:
        if isinstance(op.kind, SourceKind) and (op.uid is None or op.has_derived_uid):
            base = source_base(op.kind.spec.kind, op.kind.spec.place)
            numbered = (OperatorUid(base if number == 1 else f"{base}#{number}") for number in count(1))
            uid = next(each for each in numbered if each not in taken)
            taken.add(uid)
            op = replace(op, uid=uid, kind=replace(op.kind, is_uid_derived=True))
        named.append(op)
    return named


def source_base(kind: str, place: str) -> str:
    """Return the common prefix of the derived uids of all sources of this kind and place."""
    if len(place) > _LONGEST_PLACE:
        place = f"{place[:_LONGEST_PLACE]}… {hashlib.sha256(place.encode()).hexdigest()[:12]}"
    return f"source:{kind}({place})" if place else f"source:{kind}"
