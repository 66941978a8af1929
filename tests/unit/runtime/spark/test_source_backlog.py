"""The records that sources have not read yet, as Spark's progress reports tell; none where they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkdam.runtime.spark.source_backlog import SourceBacklog

SOURCE, OTHER = 4, 7


def _report(*sources: dict[str, Any], batch: int = 1) -> str:
    return json.dumps({"id": "x", "batchId": batch, "numInputRows": 9, "sources": list(sources)})


def _source(
    start: Any, end: Any, latest: Any, rows: int, description: str = "PythonMicroBatchStream"
) -> dict[str, Any]:
    return {
        "description": description,
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "metrics": {"avgOffsetsBehindLatest": "2.5"},
    }


def test_kafka_counts_records_from_the_first_report_on() -> None:
    kafka = _source(
        None, {"orders": {"0": 10, "1": 5}}, {"orders": {"0": 25, "1": 5, "2": 4}}, 15, "KafkaV2[Subscribe[orders]]"
    )

    assert SourceBacklog({SOURCE: (0,)}).after(_report(kafka)) == {SOURCE: 19}


def test_other_offsets_count_records_if_they_grow_by_as_much() -> None:
    backlog = SourceBacklog({SOURCE: (0,)})

    first = backlog.after(_report(_source(None, {"index": 10}, {"index": 50}, 10), batch=0))
    second = backlog.after(_report(_source({"index": 10}, {"index": 20}, {"index": 50}, 10), batch=1))
    idle = backlog.after(_report(_source({"index": 20}, {"index": 20}, {"index": 20}, 0), batch=2))

    assert (first, second, idle) == ({}, {SOURCE: 30}, {SOURCE: 0})


@pytest.mark.parametrize(
    "source",
    [
        _source(0, 1, 1, 50, "RateStreamV2"),  # seconds
        _source({"logOffset": 0}, {"logOffset": 1}, None, 195, "FileStreamSource"),  # batches of files
        _source({"index": 1, "closed": True}, {"index": 2, "closed": True}, {"index": 3, "closed": True}, 1),
        _source("a", "b", "c", 1),
        _source([1], [2], [3], 1),
        _source({}, {}, {}, 0),
    ],
)
def test_what_does_not_count_records_tells_nothing(source: dict[str, Any]) -> None:
    assert SourceBacklog({SOURCE: (0,)}).after(_report(source)) == {}


def test_a_source_of_several_streams_tells_if_all_do() -> None:
    telling = _source({"i": 1}, {"i": 2}, {"i": 5}, 1)
    silent = _source(0, 1, 1, 50)

    both = SourceBacklog({SOURCE: (0, 1), OTHER: (0, 0)})

    assert both.after(_report(telling, silent)) == {OTHER: 3}
    assert SourceBacklog({SOURCE: (0, 1)}).after(_report(telling, telling)) == {SOURCE: 6}


def test_a_report_is_read_once_and_nonsense_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    backlog = SourceBacklog({SOURCE: (0,)})
    report = _report(_source({"i": 1}, {"i": 2}, {"i": 5}, 1))

    assert (backlog.after(report), backlog.after(report)) == ({SOURCE: 3}, None)
    assert backlog.after('{"batchId": "two"}') is None
    assert "cannot be read" in caplog.text
