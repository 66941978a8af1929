"""The host of a job is notified of its start and of its end, however it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tests.support.word_count import WordCount

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.execution import hosted
from checkdam.api.launch import Launch
from checkdam.config import REST_PORT, WEB_CHECKPOINTS_HISTORY, Configuration, Origin, Setting
from checkdam.errors import CheckdamError
from checkdam.ids import JobId
from checkdam.runtime.driver.job_master import JobMaster
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import RunningJob, WatchedJob
from checkdam.runtime.job_status import JobStatus
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.restart import NoRestart
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.trouble import Step, Trouble, refuse


class Host:
    def __init__(self) -> None:
        self.told: list[tuple[str, JobId]] = []
        self.job: RunningJob | None = None

    def job_started(self, job: RunningJob) -> None:
        self.job = job
        self.told.append(("started", job.job_id))

    def job_ended(self, job_id: JobId) -> None:
        self.told.append(("ended", job_id))


class Watching(JobListener):
    def __init__(self, monitor: WatchedJob) -> None:
        self._monitor = monitor
        self.seen: list[JobStatus] = []

    def status_changed(self, status: JobStatus) -> None:
        self.seen.append(self._monitor.record().status)


def run(launch: Launch, job: Job, troubles: Sequence[Trouble] = ()) -> None:
    with hosted(launch, job, launch.configuration) as (listener, hand_over):
        master = JobMaster(job, LocalEngine(job.plan, troubles).adopt, listener=listener)
        hand_over(master)
        master.run()


@pytest.fixture
def job() -> Iterator[Job]:
    words = WordCount([["a"], ["b", "a"]])  # holds on to its storage
    yield words.job().job()
    assert words.epochs


def test_a_host_gets_a_job_that_can_be_asked_and_tells_of_itself(job: Job) -> None:
    host = Host()

    run(Launch(Configuration(), host=host), job)

    assert host.told == [("started", job.job_id), ("ended", job.job_id)]
    assert host.job is not None
    record = host.job.monitor.record()
    assert (record.id, record.name, record.status, record.epoch) == (job.job_id, job.name, JobStatus.FINISHED, 2)


def test_a_host_hears_of_the_end_of_a_job_that_failed(job: Job) -> None:
    host = Host()
    fails = Trouble(Step.BEFORE_EPOCH, refuse, number=1)

    with pytest.raises(CheckdamError, match="refused by the test"):
        run(Launch(Configuration(), host=host), replace(job, restart=NoRestart()), [fails])

    assert host.told == [("started", job.job_id), ("ended", job.job_id)]


def test_a_host_never_hears_of_a_job_that_could_not_be_made(job: Job) -> None:
    host = Host()
    launch = Launch(Configuration(), host=host)

    with pytest.raises(ValueError, match="no engine"), hosted(launch, job, launch.configuration):
        raise ValueError("no engine")

    assert host.told == []


def test_watchers_hear_of_each_event_when_the_monitor_has(job: Job) -> None:
    watching: list[Watching] = []

    def watchers(job: Job, monitor: WatchedJob) -> list[Watching]:
        watching.append(Watching(monitor))
        return watching

    run(Launch(Configuration(), host=Host(), watchers=watchers), job)

    assert watching[0].seen == [
        JobStatus.INITIALIZING,
        JobStatus.CREATED,
        JobStatus.RUNNING,
        JobStatus.FINISHED,
    ]


def test_without_a_host_nobody_watches(job: Job) -> None:
    launch = Launch(Configuration())

    with hosted(launch, job, launch.configuration) as (listener, _):
        assert listener is launch.listener


class Told(JobListener):
    def __init__(self) -> None:
        self.keys: list[str] = []

    def settings_without_effect(self, keys: Sequence[str], reason: str) -> None:
        self.keys += keys


def test_settings_of_the_server_in_code_come_too_late_and_are_not_shown() -> None:
    told = Told()
    launch = Launch(Configuration.load(None, {"rest.port": "9000"}), listener=told, host=Host())
    in_code = launch.configuration.with_value("rest.port", 9001).with_value("web.checkpoints.history", 7)

    settings = StreamExecutionEnvironment(launch)._with_server(in_code)

    assert settings.setting(REST_PORT) == Setting(9000, Origin.COMMAND_LINE)
    assert settings.get(WEB_CHECKPOINTS_HISTORY) == 7
    assert told.keys == ["rest.port"]
