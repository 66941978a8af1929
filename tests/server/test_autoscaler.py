"""The requests of Flink's autoscaler, in its order, against a real job: what it requires is there, and it rescales.

Its classes FlinkMetric, ScalingMetricCollector and RestApiMetricsCollector say which metrics it looks for, and
FlinkClusterJobListFetcher and RescaleApiScalingRealizer of its standalone form how it finds and rescales a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.real_job import ServedJob, served_job

from checkdam.testing.local_job import JOB_ID

pytestmark = pytest.mark.slow

REQUIRED = {"BUSY": lambda name: name == "busyTimeMsPerSecond"}
REQUIRED_OF_SOURCES = REQUIRED | {
    "BACK_PRESSURE": lambda name: name == "backPressuredTimeMsPerSecond",
    "IN_RATE": lambda name: name.startswith("Source__") and name.endswith(".numRecordsInPerSecond"),
    "IN": lambda name: name.startswith("Source__") and name.endswith(".numRecordsIn"),
}
WELCOME_OF_SOURCES = {
    "PENDING": lambda name: name.endswith(".pendingRecords"),
    "OUT": lambda name: name.startswith("Source__") and name.endswith(".numRecordsOut"),
}
OF_SLOTS = (
    "Status.JVM.Memory.Heap.Max",
    "Status.JVM.Memory.Heap.Used",
    "Status.Flink.Memory.Managed.Used",
    "Status.JVM.Memory.Metaspace.Used",
)


class Autoscaler:
    """Flink's autoscaler, as far as its requests go."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def _get(self, path: str, **query: str) -> Any:
        answer = self._client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def find(self) -> str:
        """Return the path of the job, if it runs and can be rescaled in place."""
        [job] = [each for each in self._get("/jobs/overview")["jobs"] if each["state"] == "RUNNING"]
        path = f"/jobs/{job['jid']}"
        settings = {entry["key"]: entry["value"] for entry in self._get(f"{path}/jobmanager/config")}
        assert settings["jobmanager.scheduler"] == "Adaptive"
        return path

    def collect(self, path: str) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the metrics of every vertex by their meaning."""
        details = self._get(path)
        assert details["timestamps"]["RUNNING"] > 0
        inputs = {node["id"]: [each["id"] for each in node.get("inputs", [])] for node in details["plan"]["nodes"]}
        assert {vertex["id"] for vertex in details["vertices"]} == set(inputs)
        assert all(vertex["maxParallelism"] > 0 for vertex in details["vertices"])
        collected = {}
        for vertex, upstream in inputs.items():
            metrics = f"{path}/vertices/{vertex}/subtasks/metrics"
            names = {entry["id"] for entry in self._get(metrics)}
            meanings = self._meanings(names, is_source=not upstream)
            answer = self._get(metrics, get=",".join(meanings))
            assert {entry["id"] for entry in answer} == set(meanings)
            collected[vertex] = {meanings[entry["id"]]: entry for entry in answer}
        driver = {
            each["id"]: float(each["value"])
            for each in self._get("/jobmanager/metrics", get="taskSlotsTotal,taskSlotsAvailable")
        }
        assert driver["taskSlotsTotal"] - driver["taskSlotsAvailable"] > 0
        slots = self._get("/taskmanagers/metrics", get=",".join(OF_SLOTS), agg="min,max,avg")
        assert slots, "Missing required TM metrics"
        return collected

    def _meanings(self, names: set[str], *, is_source: bool) -> dict[str, str]:
        found = {}
        for meaning, fits in (REQUIRED_OF_SOURCES if is_source else REQUIRED).items():
            name = next(filter(fits, names), None)
            assert name is not None, f"MetricNotFoundException: {meaning}"
            found[name] = meaning
        for meaning, fits in (WELCOME_OF_SOURCES if is_source else {}).items():
            found |= dict.fromkeys(filter(fits, names), meaning)
        return found

    def rescale(self, path: str, wanted: Mapping[str, int]) -> bool:
        """Ask for a parallelism of each vertex. Return whether a request was needed."""
        requirements = self._get(f"{path}/resource-requirements")
        changed = requirements | {
            vertex: {"parallelism": {"lowerBound": 1, "upperBound": parallelism}}
            for vertex, parallelism in wanted.items()
        }
        if changed == requirements:
            return False
        answer = self._client.put(f"{path}/resource-requirements", json=changed)
        assert answer.status_code == 200, answer.text
        return True


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ServedJob]:
    with served_job(tmp_path) as served:
        yield served


def _rescaled(job: ServedJob, parallelism: int) -> dict[str, Any]:
    while True:
        details: dict[str, Any] = job.client.get(f"/jobs/{JOB_ID}").json()
        if details["parallelism"] == parallelism and details["state"] == "RUNNING":
            return details


def test_it_finds_what_it_requires_and_rescales_to_the_largest(job: ServedJob) -> None:
    autoscaler = Autoscaler(job.client)
    path = autoscaler.find()
    source, *others = [vertex["id"] for vertex in job.client.get(path).json()["vertices"]]
    engine = job.job._target.engine
    assert engine is not None
    engine.report_pending({0: 500})  # as Spark's progress would
    while "pendingRecords" not in job.client.get(f"{path}/vertices/{source}/metrics").text:
        pass

    collected = autoscaler.collect(path)

    assert collected[source]["PENDING"]["sum"] == 500
    assert collected[source]["IN"]["sum"] == 5
    assert collected[source]["BUSY"]["avg"] == "NaN"  # Spark's reading: it is not scaled by that
    assert all(0 <= collected[other]["BUSY"]["max"] <= 1000 for other in others)

    wanted = {source: 1, others[0]: 4, others[1]: 3, others[2]: 2}
    assert autoscaler.rescale(path, wanted)
    _rescaled(job, 4)

    assert autoscaler.find() == path
    assert autoscaler.collect(path).keys() == collected.keys()
    assert autoscaler.rescale(path, wanted)  # each vertex has 4 now, and it asks again: nothing happens
    assert _rescaled(job, 4)["restarts"] == 0
    assert len(job.client.get(f"{path}/rescales/history").json()) == 1
