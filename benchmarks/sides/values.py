"""Serializers, in a process that has done nothing else before."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.serializers import serializers


def run(*, values: int, rounds: int) -> list[dict[str, Any]]:
    return [asdict(figure) for figure in serializers(values=values, rounds=rounds)]
