"""Every program in examples/ does what it says, on Spark."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from checkdam import ProcessFunction, WatermarkStrategy
from checkdam.api.launch import current_launch
from checkdam.checkpoint.settings import JobEnd
from checkdam.cli.demo import demo_processes
from checkdam.cli.demo.child import ChildJob
from checkdam.cli.job_file import run_job_file
from checkdam.cli.main import command_line
from checkdam.runtime.monitor.job_events import CheckpointStats

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs, LineServer, Watcher

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(
    jobs: Jobs, name: str, *arguments: object, resume: bool = False, settings: Mapping[str, object] | None = None
) -> Watcher:
    """Run an example in the session of the tests, as `checkdam run -p 2` would."""
    prepare(jobs, resume=resume, settings=settings)
    run_job_file(EXAMPLES / name, [str(argument) for argument in arguments])
    return jobs.watcher


def prepare(
    jobs: Jobs, parallelism: int = 2, *, resume: bool = False, settings: Mapping[str, object] | None = None
) -> None:
    """Tell the program that runs next what the command line would tell it; its job has a new watcher."""
    jobs.environment(resume=resume)
    launch = current_launch()
    for key, value in {"parallelism.default": parallelism, **(settings or {})}.items():
        launch.configuration = launch.configuration.with_value(key, value)


def documented_output(name: str) -> list[str]:
    """Return the lines that an example says it prints: those of its docstring that are indented."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
    return [line.strip() for line in docstring.splitlines() if line.startswith("    ")]


class Heard(io.StringIO):
    """Takes what slots say, which arrives on the way of Spark's logs, some time after it was said."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def write(self, text: str) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, lines: int) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: len(self.getvalue().splitlines()) >= lines, timeout=30)
        return self.getvalue().splitlines()


def test_word_count_counts_the_words_of_a_file(jobs: Jobs) -> None:
    texts = jobs.texts("to be or not\n", "to be\n")

    shown = run(jobs, "word_count.py", texts).values

    assert Counter(shown) == Counter([("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 2), ("be", 2)])


def test_socket_word_count_counts_what_a_server_says(
    jobs: Jobs, line_server: LineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checkdam import StreamExecutionEnvironment

    connect = StreamExecutionEnvironment.socket_text_stream
    prepare(jobs)
    jobs.watcher.on_printed = lambda _: jobs.cancel() if len(jobs.watcher.lines) == 3 else None
    with line_server("dam", "beaver dam") as port:
        # The program names port 7777, which may be taken here.
        monkeypatch.setattr(
            StreamExecutionEnvironment, "socket_text_stream", lambda env, host, named: connect(env, host, port)
        )
        run_job_file(EXAMPLES / "socket_word_count.py", [])

    assert Counter(jobs.watcher.values) == Counter([("dam", 1), ("beaver", 1), ("dam", 2)])


def test_count_window_average_gives_both_averages(jobs: Jobs) -> None:
    assert run(jobs, "count_window_average.py").values == [(1, 4), (1, 5)]


def test_exponential_average_gives_the_averages_of_each_sensor(jobs: Jobs) -> None:
    shown = run(jobs, "exponential_average.py").shown

    assert sorted(shown) == sorted(documented_output("exponential_average.py"))


def test_state_with_ttl_forgets_what_was_said_before_the_silence(jobs: Jobs) -> None:
    shown = run(jobs, "state_with_ttl.py").shown

    assert shown == ["ada says hello", "ada says how are you? after hello", "ada says anybody there?"]


def test_buffering_sink_sends_pairs_and_keeps_the_rest_in_the_checkpoint(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)

    settings = {
        "state.checkpoints.dir": str(jobs.tmp_path / "ck"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    watcher = run(jobs, "buffering_sink.py", settings=settings)

    assert heard.wait_for(2) == ["sent [('apple', 1), ('banana', 2)]", "sent [('cherry', 3), ('date', 4)]"]
    assert command_line(["inspect", watcher.checkpoints[-1].path]) == 0
    assert "buffered-elements" in capsys.readouterr().out


def test_counter_source_counts_to_its_limit(jobs: Jobs) -> None:
    assert run(jobs, "counter_source.py").values == list(range(10))


def test_a_resumed_counter_source_goes_on_behind_the_checkpoint(jobs: Jobs) -> None:
    limit = 120_000  # more than it gives in two epochs
    settings = {
        "state.checkpoints.dir": str(jobs.tmp_path / "ck"),
        "execution.checkpointing.interval": "0",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    prepare(jobs, settings=settings)
    jobs.watcher.on_checkpoint = lambda stats: jobs.cancel() if stats.checkpoint_id == 1 else None
    run_job_file(EXAMPLES / "counter_source.py", [str(limit)])
    before = jobs.watcher.values

    after = run(jobs, "counter_source.py", limit, settings=settings, resume=True).values

    assert after[-1] == limit - 1
    assert after == list(range(after[0], limit))
    assert before == list(range(len(before)))
    assert 0 < after[0] <= len(before) < limit


def test_broadcast_rules_finds_the_pairs_its_rules_name(jobs: Jobs) -> None:
    shown = run(jobs, "broadcast_rules.py").shown

    assert sorted(shown) == [
        "roll: blue square, blue circle",
        "stack: red circle, red square",
        "stack: red triangle, red square",
    ]


def test_page_views_counts_minutes_again_with_late_views_and_tells_those_too_late(jobs: Jobs) -> None:
    shown = run(jobs, "page_views.py").shown

    assert Counter(shown) == Counter(documented_output("page_views.py"))
    assert shown.index("12:00 /home 2") < shown.index("12:00 /home 3")


def test_user_sessions_merges_sessions_that_a_click_connects(jobs: Jobs) -> None:
    assert Counter(run(jobs, "user_sessions.py").shown) == Counter(documented_output("user_sessions.py"))


def test_orders_and_payments_joins_payments_within_their_interval(jobs: Jobs) -> None:
    assert Counter(run(jobs, "orders_and_payments.py").shown) == Counter(documented_output("orders_and_payments.py"))


def test_async_enrichment_judges_every_order(jobs: Jobs) -> None:
    judged = ["cheap", "dear", "cheap", "unknown"]

    assert sorted(run(jobs, "async_enrichment.py").values) == [(order, judged[order % 4]) for order in range(12)]


def test_checkpoints_counts_on_rocksdb_and_leaves_its_final_checkpoint(jobs: Jobs) -> None:
    watcher = run(jobs, "checkpoints.py", jobs.tmp_path / "ck")

    assert Counter(watcher.values) == Counter([("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 2), ("be", 2)])
    assert [path.name for path in (jobs.tmp_path / "ck").glob("*/chk-*")] == ["chk-1"]


# -- fraud detection ------------------------------------------------------------------------------------------------

FRAUD = EXAMPLES / "fraud_detection"


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The plain loop. The session of the tests cannot import modules beside the job: they are sent to it whole."""
    import pyspark.cloudpickle

    monkeypatch.syspath_prepend(FRAUD)
    import detector  # type: ignore[import-not-found, unused-ignore]  # found on the path from here on
    import reference  # type: ignore[import-not-found, unused-ignore]
    import transactions  # type: ignore[import-not-found, unused-ignore]

    modules = (transactions, detector, reference)
    for pickler in (cloudpickle, pyspark.cloudpickle):
        for module in modules:
            pickler.register_pickle_by_value(module)
    yield reference
    for pickler in (cloudpickle, pyspark.cloudpickle):
        for module in modules:
            pickler.unregister_pickle_by_value(module)
    for module in modules:
        del sys.modules[module.__name__]


class FraudJob:
    """Runs the job, which has no end, until enough alerts are published."""

    def __init__(self, jobs: Jobs, reference: ModuleType) -> None:
        self.directory = jobs.tmp_path / "fraud"
        self._jobs = jobs
        self._reference = reference

    @property
    def alerts(self) -> list[Any]:
        return list(self._reference.published_alerts(self.directory))

    def run(
        self,
        until: Callable[[Sequence[Any]], bool],
        parallelism: int = 2,
        *,
        meanwhile: Callable[[], None] | None = None,
        resume: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> Watcher:
        """`until` is asked with each checkpoint; `meanwhile` happens once, when the first alerts are out."""
        prepare(self._jobs, parallelism, resume=resume, settings=settings)
        watcher, to_do = self._jobs.watcher, [meanwhile] if meanwhile else []
        is_cancelled = False

        def on_checkpoint(_: CheckpointStats) -> None:
            nonlocal is_cancelled
            alerts = self.alerts
            if alerts and to_do:
                to_do.pop()()
            elif not is_cancelled and until(alerts):
                is_cancelled = True
                self._jobs.cancel()

        watcher.on_checkpoint = on_checkpoint
        run_job_file(FRAUD / "job.py", [str(self.directory)])
        assert watcher.end is JobEnd.CANCELLED
        return watcher

    def are_those_of_the_plain_loop(self) -> bool:
        alerts = self.alerts
        return alerts == list(islice(self._reference.expected_alerts(), len(alerts)))


@pytest.fixture
def fraud(jobs: Jobs, reference: ModuleType) -> FraudJob:
    return FraudJob(jobs, reference)


def at_least(count: int) -> Callable[[Sequence[Any]], bool]:
    return lambda alerts: len(alerts) >= count


def test_fraud_alerts_are_those_of_a_plain_loop_after_a_lost_slot_too(jobs: Jobs, fraud: FraudJob) -> None:
    def lose_a_slot() -> None:
        os.kill(jobs.watcher.attempts[0][1], signal.SIGKILL)

    watcher = fraud.run(at_least(20), meanwhile=lose_a_slot)

    assert len(watcher.attempts) == 2
    assert fraud.are_those_of_the_plain_loop()
    # Of 20 accounts some six wait, each with a trial and a timer; without the timers nearly all would keep a trial.
    assert min(stats.held.entries for stats in watcher.epochs[-6:]) <= 15


class Read(ProcessFunction):
    """Reads a payment from a line of a file, on a stream without keys."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def process_element(self, value: str, ctx: Any) -> Iterator[Any]:
        yield self.of(*json.loads(value))


def test_all_fraud_alerts_of_a_file_are_found_behind_a_function_without_keys(jobs: Jobs, reference: ModuleType) -> None:
    detector, of = sys.modules["detector"], sys.modules["transactions"].Transaction
    expected = list(islice(reference.expected_alerts(), 146))
    payments = islice(reference.transactions(), expected[-1].large + 1)
    texts = jobs.texts("\n".join(json.dumps(payment) for payment in payments))
    env = jobs.environment(2)
    in_order = WatermarkStrategy.for_monotonous_timestamps(lambda payment: payment.at)
    read = env.read_text(texts).process(Read(of), output_type=of).assign_timestamps_and_watermarks(in_order)
    rules = env.from_collection([reference.FIRST_RULE]).broadcast(detector.RULES)
    alerts = read.key_by(lambda payment: payment.account).connect(rules).process(detector.FraudDetector()).uid("fraud")
    alerts.map(tuple, output_type=tuple[str, str, int, int, float]).print()

    env.execute()

    assert sorted(jobs.watcher.values, key=lambda alert: alert[3]) == [tuple(alert) for alert in expected]


def test_fraud_detection_goes_on_after_a_killed_driver_at_any_parallelism_and_on_another_backend(
    fraud: FraudJob,
) -> None:
    options = ["-p", "2", "--master", "local[2]", str(FRAUD / "job.py"), "--", str(fraud.directory)]
    child = ChildJob(options, mark="fraud")
    try:
        child.wait_for("checkpoint 4 completed", seconds=200)
    finally:
        child.kill()
    assert demo_processes.wait_until_gone("fraud", 30.0) == []
    killed = len(fraud.alerts)

    fraud.run(at_least(killed + 5), parallelism=3, resume=True)
    wider = len(fraud.alerts)
    fraud.run(at_least(wider + 5), parallelism=1, resume=True, settings={"state.backend.type": "rocksdb"})

    assert fraud.are_those_of_the_plain_loop()


def test_a_fraud_rule_changed_at_run_time_holds_from_then_on_and_nothing_else_changes(
    fraud: FraudJob, reference: ModuleType
) -> None:
    stricter = reference.Rule("trial", small=1.0, large=200.0, within=60)  # the first rule says 500

    def change_the_rule() -> None:
        rule = fraud.directory / "rule.json"
        rule.write_text('no rule at all\n{"name": "trial", "small": 1.0, "large": 200.0, "within": 60}\n')
        rule.rename(fraud.directory / "rules" / "2.json")

    fraud.run(lambda alerts: sum(alert.amount <= 500 for alert in alerts) > 3, meanwhile=change_the_rule)

    alerts = fraud.alerts

    def would_be_right(since: int) -> bool:
        expected = reference.expected_alerts(lambda number: stricter if number >= since else reference.FIRST_RULE)
        return alerts == list(islice(expected, len(alerts)))

    assert any(would_be_right(since) for since in range(alerts[-1].large))
