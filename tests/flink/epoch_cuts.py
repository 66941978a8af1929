"""The same records cut into epochs in two ways, where the results differ: all that epochs change about windows.

Flink shows the same differences if its watermark and clock move at the same places: after the last record, or after
each one. `epoch` are the results if all records are in one epoch; `record_by_record` if each record is an epoch of its
own, which is what Flink does with a watermark after every record. In processing time `clock` has the time of each
record, and that of an epoch without records at the end; records that share an epoch get the time of the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.flink.job_specs import Record, Spec


@dataclass(frozen=True)
class EpochCut:
    """A job whose results depend on when the watermark or the clock moves."""

    name: str
    why: str
    options: Spec
    records: list[Record]
    epoch: list[Any]
    record_by_record: list[Any]
    late_record_by_record: list[Any]
    clock: list[int] | None = None

    def in_one_epoch(self) -> Spec:
        clock = self.clock[-2:] if self.clock is not None else None
        return self._spec([self.records], clock, number=2 * EPOCH_CUTS.index(self))

    def each_an_epoch(self) -> Spec:
        return self._spec([[record] for record in self.records], self.clock, number=2 * EPOCH_CUTS.index(self) + 1)

    def _spec(self, epochs: list[list[Record]], clock: list[int] | None, number: int) -> Spec:
        common = {"kind": "window", "trigger": None, "evictor": None, "lateness": 0, "late": True, "ordered": True}
        function = {"function": "apply", "columns": [0, 1, 2], "then": None, "out_of_orderness": 0}
        checkdam = {"parallelism": 1, "backend": "hashmap", "joins_batches": True, "crash_in_epoch": None}
        times: Spec = {"epochs": epochs} if clock is None else {"epochs": [*epochs, []], "clock": clock, "late": False}
        return {"seed": -1 - number, **common, **function, **self.options, **times, "checkdam": checkdam}


EPOCH_CUTS = [
    EpochCut(
        name="a record in the same epoch as the one that would have made it late",
        why="it is not late: the watermark moves only at the end of the epoch",
        options={"assigner": {"kind": "tumbling", "size": 5, "offset": 0}},
        records=[["a", 1, 0, 0], ["a", 2, 8, 0], ["a", 3, 4, 0], ["a", 4, 6, 0]],
        epoch=[[["applied", "a", 0, 5, [1, 3]], 4], [["applied", "a", 5, 10, [2, 4]], 9]],
        record_by_record=[[["applied", "a", 0, 5, [1]], 4], [["applied", "a", 5, 10, [2, 4]], 9]],
        late_record_by_record=[[["a", 3, 4], 4]],
    ),
    EpochCut(
        name="a record between two sessions in the same epoch",
        why="it joins them: neither has ended before the end of the epoch",
        options={"assigner": {"kind": "session", "gap": 5}, "ordered": False},
        records=[["a", 1, 0, 0], ["a", 2, 8, 0], ["a", 3, 4, 0]],
        epoch=[[["applied", "a", 0, 13, [1, 2, 3]], 12]],
        record_by_record=[[["applied", "a", 0, 5, [1]], 4], [["applied", "a", 4, 13, [2, 3]], 12]],
        late_record_by_record=[],
    ),
    EpochCut(
        name="a record exactly where a session ends",
        why="Flink's sessions include their end, as long as the watermark has not closed them",
        options={"assigner": {"kind": "session", "gap": 5}},
        records=[["a", 1, 0, 0], ["b", 0, 5, 0], ["a", 2, 5, 0]],
        epoch=[[["applied", "a", 0, 10, [1, 2]], 9], [["applied", "b", 5, 10, [0]], 9]],
        record_by_record=[
            [["applied", "a", 0, 5, [1]], 4],
            [["applied", "a", 5, 10, [2]], 9],
            [["applied", "b", 5, 10, [0]], 9],
        ],
        late_record_by_record=[],
    ),
    EpochCut(
        name="a continuous trigger whose times lie within the epoch",
        why="it fires once for each of its times, each time with all records of the epoch",
        options={
            "assigner": {"kind": "tumbling", "size": 10, "offset": 0},
            "trigger": {"kind": "continuous", "interval": 4},
        },
        records=[["a", 1, 1, 0], ["a", 2, 5, 0], ["a", 3, 9, 0]],
        epoch=[[["applied", "a", 0, 10, [1, 2, 3]], 9]] * 3,
        record_by_record=[
            [["applied", "a", 0, 10, [1, 2]], 9],
            [["applied", "a", 0, 10, [1, 2, 3]], 9],
            [["applied", "a", 0, 10, [1, 2, 3]], 9],
        ],
        late_record_by_record=[],
    ),
    EpochCut(
        name="a record that is late but allowed",
        why="its window fires again only if it had fired before the epoch",
        options={"assigner": {"kind": "tumbling", "size": 5, "offset": 0}, "lateness": 10},
        records=[["a", 1, 0, 0], ["a", 2, 8, 0], ["a", 3, 4, 0]],
        epoch=[[["applied", "a", 0, 5, [1, 3]], 4], [["applied", "a", 5, 10, [2]], 9]],
        record_by_record=[
            [["applied", "a", 0, 5, [1]], 4],
            [["applied", "a", 0, 5, [1, 3]], 4],
            [["applied", "a", 5, 10, [2]], 9],
        ],
        late_record_by_record=[],
    ),
    EpochCut(
        name="records that wait for their epoch, in windows by the clock",
        why="they belong to the window of the time at which the epoch runs",
        options={"assigner": {"kind": "tumbling", "size": 5, "offset": 0, "time": "processing"}},
        clock=[1, 4, 7, 100],
        records=[["a", 1, 1, 0], ["a", 2, 2, 0], ["a", 3, 3, 0]],
        epoch=[[["applied", "a", 5, 10, [1, 2, 3]], 9]],
        record_by_record=[[["applied", "a", 0, 5, [1, 2]], 4], [["applied", "a", 5, 10, [3]], 9]],
        late_record_by_record=[],
    ),
    EpochCut(
        name="records that wait for their epoch, in sessions by the clock",
        why="no gap is between them: they come at the same time",
        options={"assigner": {"kind": "session", "gap": 5, "time": "processing"}},
        clock=[1, 4, 20, 100],
        records=[["a", 1, 1, 0], ["a", 2, 2, 0], ["a", 3, 3, 0]],
        epoch=[[["applied", "a", 20, 25, [1, 2, 3]], 24]],
        record_by_record=[[["applied", "a", 1, 9, [1, 2]], 8], [["applied", "a", 20, 25, [3]], 24]],
        late_record_by_record=[],
    ),
    EpochCut(
        name="records that wait for their epoch, with a timeout",
        why="the timeout counts from the epoch in which the first record comes",
        options={
            "assigner": {"kind": "global"},
            "trigger": {
                "kind": "timeout",
                "of": {"kind": "count", "size": 3},
                "timeout": 10,
                "reset_on_record": False,
                "clear_on_timeout": True,
            },
        },
        clock=[0, 11, 100],
        records=[["a", 1, 1, 0], ["a", 2, 2, 0]],
        epoch=[[["applied", "a", None, None, [1, 2]], 9223372036854775807]],
        record_by_record=[
            [["applied", "a", None, None, [1]], 9223372036854775807],
            [["applied", "a", None, None, [1, 2]], 9223372036854775807],
        ],
        late_record_by_record=[],
    ),
]

TIMER_OF_THE_PAST: Spec = {
    "seed": -1001,
    "kind": "window",
    "assigner": {"kind": "tumbling", "size": 10, "offset": 0},
    "trigger": {"kind": "processing_time"},
    "evictor": None,
    "function": "apply",
    "lateness": 0,
    "late": False,
    "ordered": True,
    "columns": [0, 1, 2],
    "then": None,
    "out_of_orderness": 0,
    "clock": [1_000],
    "epochs": [[["a", 1, 1, 0], ["a", 2, 2, 0], ["a", 3, 3, 0]]],
    "checkdam": {"parallelism": 1, "backend": "hashmap", "joins_batches": True, "crash_in_epoch": None},
}
"""The end of the window, which is in event time, is in the past by the clock. Flink fires such a timer as soon as the
record is processed, Checkdam at the end of the epoch."""


def epoch_cut_specs() -> list[Spec]:
    return [spec for cut in EPOCH_CUTS for spec in (cut.in_one_epoch(), cut.each_an_epoch())]
