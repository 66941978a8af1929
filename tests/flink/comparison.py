"""Compares what Flink and Checkdam say about a job, and keeps Flink's answers for tests without Flink."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.flink.checkdam_jobs import run_on_checkdam
from tests.flink.job_specs import Spec

Answer = dict[str, Any]

KEPT = Path(__file__).parent / "data" / "flink_answers.jsonl"
"""Flink's answers for KEPT_SEEDS and for the jobs of tests/flink/epoch_cuts.py, one a line."""

KEPT_SEEDS = range(1, 61)


def kept_answers() -> dict[int, Answer]:
    lines = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    return {answer.pop("seed"): answer for answer in lines}


def keep_answers(answers: Mapping[int, Answer]) -> None:
    KEPT.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"seed": seed, **_sorted(answer)}, separators=(",", ":")) for seed, answer in answers.items()]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sorted(answer: Answer) -> Answer:
    return {name: sorted(records, key=json.dumps) for name, records in answer.items()}


def checkdam_answer(spec: Spec) -> Answer:
    results, late = run_on_checkdam(spec)
    return {"results": results, "late": late}


def answer_or_error(spec: Spec) -> Answer:
    """Return Checkdam's answer, or its error, so that the other jobs are compared all the same."""
    try:
        return checkdam_answer(spec)
    except Exception as failure:  # noqa: BLE001  told as a difference
        return {"error": repr(failure)}


def difference(flink: Answer, checkdam: Answer) -> str:
    """Return in which records two answers differ as multisets; empty if they are equal."""
    for who, answer in (("Flink", flink), ("Checkdam", checkdam)):
        if "error" in answer:
            return f"  {who} failed: {answer['error']}"
    lines = []
    for name in ("results", "late"):
        one, other = multiset(flink[name]), multiset(checkdam[name])
        lines += [f"  {name} of Flink only: {count} x {record}" for record, count in sorted((one - other).items())]
        lines += [f"  {name} of Checkdam only: {count} x {record}" for record, count in sorted((other - one).items())]
    return "\n".join(lines)


def multiset(records: Iterable[Any]) -> Counter[str]:
    return Counter(map(json.dumps, records))
