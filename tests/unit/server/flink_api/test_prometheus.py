"""What `/metrics` promises: text that Prometheus reads, under the names of Flink's reporter."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.unit.server.records import COUNT, JOB_ID, job

from checkdam.graph.metrics import HistogramStatistics, MeterReading, MetricValue
from checkdam.runtime.monitor.job_records import OperatorFigures, SubtaskFigures
from checkdam.server.flink_api.prometheus import exposition


def _samples(text: str) -> dict[str, list[Sample]]:
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


def test_a_job_has_its_metrics_under_flinks_names() -> None:
    samples = _samples(exposition([job()]).decode())

    [duration] = samples["flink_jobmanager_job_lastCheckpointDuration"]
    assert (duration.value, duration.labels) == (300.0, {"job_id": JOB_ID, "job_name": "word count"})
    [running] = samples["flink_jobmanager_numRunningJobs"]
    assert running.value == 1


def test_subtasks_are_told_apart_and_names_survive_their_quotes() -> None:
    samples = _samples(exposition([job()]).decode())

    told = {
        (each.labels["task_name"], each.labels["subtask_index"]): each
        for each in samples["flink_taskmanager_job_task_numRecordsIn"]
    }
    assert {key: each.value for key, each in told.items()} == {
        ("Source: words", "0"): 0,
        (COUNT.name, "0"): 10,
        (COUNT.name, "1"): 20,
    }
    assert told[COUNT.name, "1"].labels["tm_id"] == "h:12"
    assert told[COUNT.name, "1"].labels["task_id"] == COUNT.vertex_id
    assert len(samples["flink_taskmanager_job_task_operator_numRecordsIn"]) == 3


def test_the_samples_of_a_name_stand_together_whatever_the_number_of_jobs() -> None:
    text = exposition([job(), job(id="b" * 32, name="other")]).decode()

    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]

    assert len(types) == len(set(types))
    assert len(_samples(text)["flink_jobmanager_job_numRestarts"]) == 2


def test_names_are_ones_that_prometheus_takes_and_text_values_are_left_out() -> None:
    samples = _samples(exposition([job()]).decode())

    assert "flink_taskmanager_Status_Process_Memory_RSS" in samples
    assert not any("ExternalPath" in name or "." in name for name in samples)


def test_a_server_without_jobs_still_answers() -> None:
    assert _samples(exposition([]).decode())["flink_jobmanager_numRunningJobs"][0].value == 0


def test_metrics_of_functions_are_exported_with_the_uid_of_their_operator() -> None:
    user: dict[str, MetricValue] = {
        "cache.hits": 5,
        "mode": "fast",
        "events": MeterReading(30, 60.0, 0.5),
        "length": HistogramStatistics(3, 1.0, 9.0, 4.0, median=2.0, p99=9.0),
        "empty": HistogramStatistics(),
    }
    figures = OperatorFigures(1, (SubtaskFigures(0, user=user), SubtaskFigures(1)))

    samples = _samples(exposition([job(figures=(figures,))]).decode())

    of = "flink_taskmanager_job_task_operator_"
    [hits] = samples[f"{of}cache_hits"]
    assert (hits.value, hits.labels["operator_name"], hits.labels["uid"]) == (5, COUNT.name, COUNT.uid)
    assert samples[f"{of}events"][0].value == 0.5
    assert samples[f"{of}length_count"][0].value == 3
    assert {each.labels["quantile"]: each.value for each in samples[f"{of}length"]}["0.99"] == 9
    assert f"{of}mode" not in samples
    assert f"{of}empty" not in samples
    assert samples[f"{of}empty_count"][0].value == 0
