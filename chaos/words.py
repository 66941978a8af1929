"""The word count: one sum on the hashmap backend, with an exactly-once file sink."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from chaos.contract import difference
from chaos.place import Place
from checkdam import DataStream, HashMapStateBackend, StreamExecutionEnvironment
from checkdam.graph.operators import OP_STATE
from checkdam.state_reader import Savepoint

_UID = "count"
_SINK = "counts"


class Words:
    """Counts words, and emits each word with its count so far."""

    name = "words"

    def write_input(self, place: Place, rng: random.Random) -> None:
        place.write_input(lambda batch, number: [f"word{rng.randint(0, 400)}" for _ in range(rng.randint(0, 300))])

    def build(self, environment: StreamExecutionEnvironment, lines: DataStream[Any], place: Place) -> None:
        environment.set_state_backend(HashMapStateBackend())
        counts = lines.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1).uid(_UID)
        counts.sink_to_files(str(place.output / _SINK))

    def output_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        expected = Counter({(word, n + 1): 1 for word, count in _stages(place)[-1].items() for n in range(count)})
        found = Counter((record["f0"], record["f1"]) for record in place.published(_SINK))
        yield from difference("output", found, expected)

    def final_state_faults(self, place: Place, last: Savepoint) -> Iterator[str]:
        yield from difference("state", _counts(last), _stages(place)[-1])

    def state_faults(self, place: Place, snapshot: Savepoint) -> Iterator[str]:
        counts = _counts(snapshot)
        if counts not in _stages(place):
            yield f"{snapshot.path} holds {counts.total()} words in all, which is no state the job goes through"


def _stages(place: Place) -> list[Counter[str]]:
    """Count the words before the first batch and after each one."""
    stages: list[Counter[str]] = [Counter()]
    for batch in place.read_input():
        stages.append(stages[-1] + Counter(batch))
    return stages


def _counts(snapshot: Savepoint) -> Counter[str]:
    if not snapshot.states(_UID):
        return Counter()
    return Counter({word: count for word, (_, count) in snapshot.keyed_state(_UID, OP_STATE)})
