"""`python -m benchmarks.serializers`: the durable form compared with pickle and msgspec, in time per value.

A store encodes and decodes whole batches (hashmap) or single values (rocksdb). The bar is for what all three do: turn
values into bytes and back. Only the stores check every value against its declared type before it becomes durable. That
is compared with pickle, which checks nothing; msgspec checks when it reads, but not when it writes.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from benchmarks.report import Figure, print_table
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info

BAR = 1.5
_PROTOCOL = 5


@dataclass(frozen=True)
class Purchase:
    account: str
    items: int
    amount: float


class Visit(NamedTuple):
    page: str
    seconds: int
    share: float


def serializers(*, values: int = 10_000, rounds: int = 40) -> list[Figure]:
    """Return our time relative to the faster of pickle and msgspec, for each kind of value."""
    figures: list[Figure] = []
    for name, hint, made in _cases(values):
        figures += _compared(name, hint, made, rounds)
    return figures


def _cases(count: int) -> list[tuple[str, Any, list[Any]]]:
    numbers = range(count)
    return [
        ("tuples", tuple[str, int, float], [(f"page-{i}", i, i / 7) for i in numbers]),
        ("named tuples", Visit, [Visit(f"page-{i}", i, i / 7) for i in numbers]),
        ("dataclasses", Purchase, [Purchase(f"account-{i}", i, i / 7) for i in numbers]),
        ("dicts", dict[str, int], [{f"word-{j}": i * j for j in range(5)} for i in numbers]),
    ]


def _compared(name: str, hint: Any, values: list[Any], rounds: int) -> list[Figure]:
    ours = serializer(type_info(hint))
    encoder = msgspec.msgpack.Encoder()
    many: Any = msgspec.msgpack.Decoder(list[hint])
    one: Any = msgspec.msgpack.Decoder(hint)
    packed, pickled = ours.encode(values), pickle.dumps(values, _PROTOCOL)
    packed_each = list(map(ours.encode_one, values))
    pickled_each = [pickle.dumps(value, _PROTOCOL) for value in values]
    assert ours.decode(packed) == pickle.loads(pickled) == values

    times = _fastest(
        {
            "encode": lambda: ours.encode(values),
            "encode msgspec": lambda: encoder.encode(values),
            "encode pickle": lambda: pickle.dumps(values, _PROTOCOL),
            "decode": lambda: ours.decode(packed),
            "decode msgspec": lambda: many.decode(packed),
            "decode pickle": lambda: pickle.loads(pickled),
            "checked": lambda: ours.encode_checked(values),
            "each checked": lambda: [ours.encode_one_checked(value) for value in values],
            "each encoded by pickle": lambda: [pickle.dumps(value, _PROTOCOL) for value in values],
            "each decoded": lambda: [ours.decode_one(data) for data in packed_each],
            "each decoded by msgspec": lambda: [one.decode(data) for data in packed_each],
            "each decoded by pickle": lambda: [pickle.loads(data) for data in pickled_each],
        },
        rounds,
    )

    def ratio(own: str, *others: str) -> float:
        return times[own] / min(times[other] for other in others)

    each = ratio("each decoded", "each decoded by msgspec", "each decoded by pickle")
    return [
        Figure(
            f"{name}: encode, beside pickle and msgspec",
            ratio("encode", "encode msgspec", "encode pickle"),
            at_most=BAR,
        ),
        Figure(
            f"{name}: decode, beside pickle and msgspec",
            ratio("decode", "decode msgspec", "decode pickle"),
            at_most=BAR,
        ),
        Figure(f"{name}: decode one by one, beside pickle and msgspec", each, at_most=BAR),
        Figure(f"{name}: encode and check, beside pickle", ratio("checked", "encode pickle")),
        Figure(f"{name}: encode and check one by one, beside pickle", ratio("each checked", "each encoded by pickle")),
        Figure(f"{name}: encode and check", times["checked"] / len(values) * 1e9, "ns"),
        Figure(f"{name}: decode", times["decode"] / len(values) * 1e9, "ns"),
    ]


def _fastest(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the shortest of many runs of each, in turns, so that a busy moment of the machine affects all equally."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            for _ in range(2):  # the second run finds its own data in the caches, whatever ran before
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> int:
    figures = serializers()
    print_table(figures)
    return 0 if all(figure.passes for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
