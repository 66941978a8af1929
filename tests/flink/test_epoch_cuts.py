"""How records are cut into epochs does not change the results of windows, as long as no record is late."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.flink.comparison import checkdam_answer, multiset
from tests.flink.job_specs import Record, Spec, punctual_spec

pytestmark = pytest.mark.slow


def _cut(records: list[Record], random: Random, cuts: int) -> list[list[Record]]:
    places = sorted(random.randint(0, len(records)) for _ in range(cuts))
    return [records[start:end] for start, end in zip([0, *places], [*places, len(records)], strict=True)]


def _without_watermarks(results: list[Any]) -> list[Any]:
    """Leave out the watermark that a window function saw, which is that of the end of the epoch."""
    for result, _ in results:
        if result[0] in ("processed", "reduced", "aggregated"):
            result[5] = None
    return results


def _results(spec: Spec, epochs: list[list[Record]]) -> Any:
    answer = checkdam_answer({**spec, "epochs": epochs})
    assert answer["late"] == []
    if spec["kind"] == "window":
        return multiset(_without_watermarks(answer["results"]))
    return multiset(answer["results"])


@pytest.mark.parametrize("seed", range(1, 31))
def test_the_cut_into_epochs_does_not_show_in_the_results(seed: int) -> None:
    spec, random = punctual_spec(seed), Random(seed)
    records = [record for epoch in spec["epochs"] for record in epoch]

    in_one_epoch = _results(spec, [records])

    assert _results(spec, _cut(records, random, cuts=3)) == in_one_epoch, spec
    assert _results(spec, _cut(records, random, cuts=12)) == in_one_epoch, spec
