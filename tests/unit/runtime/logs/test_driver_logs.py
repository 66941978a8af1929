from __future__ import annotations

import io
import logging
import sys
from contextlib import redirect_stderr
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.runtime.logs.plain_program import plain_program

from checkdam.ids import JobId
from checkdam.runtime.logs.driver_logs import driver_logged
from checkdam.runtime.logs.log_settings import LogSettings
from checkdam.testing import ManualClock

JOB = JobId("0" * 32)


def _lines(tmp_path: Path, kind: str) -> list[str]:
    return (tmp_path / "job" / f"driver.{kind}").read_text().splitlines()


def test_events_and_log_records_have_times_in_utc_and_levels(tmp_path: Path) -> None:
    with plain_program() as terminal:
        clock = ManualClock(datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC))

        with driver_logged(LogSettings(str(tmp_path / "job")), clock) as log:
            log.write(logging.WARNING, "checkpoint 4 failed:\nit timed out")
            logging.getLogger("rates").info("loaded")

        first, second, third = _lines(tmp_path, "log")
        assert first == "2026-01-02T03:04:05.678Z WARN  checkdam.job: checkpoint 4 failed:"
        assert second == "it timed out"
        assert third.endswith("Z INFO  rates: loaded")
        assert terminal.getvalue() == ""


def test_a_program_without_logging_still_sees_its_warnings(tmp_path: Path) -> None:
    with plain_program() as terminal:
        with driver_logged(LogSettings(str(tmp_path / "job"))) as log:
            log.job_started(JOB, "job", 1)
            logging.getLogger("rates").warning("old")

        assert terminal.getvalue() == "old\n"
        assert not (tmp_path / "job" / "driver.out").exists()


def test_a_program_that_set_up_logging_keeps_its_level_and_sees_each_record_once(tmp_path: Path) -> None:
    with plain_program() as terminal:
        root, own = logging.getLogger(), io.StringIO()
        root.addHandler(logging.StreamHandler(own))

        with driver_logged(LogSettings(str(tmp_path / "job"))):
            logging.getLogger("rates").warning("old")
            logging.getLogger("rates").info("not at its level")

        assert own.getvalue() == "old\n"
        assert terminal.getvalue() == ""
        assert len(_lines(tmp_path, "log")) == 1
        assert root.level == logging.WARNING


def test_steps_of_spark_are_left_out(tmp_path: Path) -> None:
    with plain_program():
        with driver_logged(LogSettings(str(tmp_path / "job"))):
            logging.getLogger("py4j.clientserver").info("Received command c on object id p0")
            logging.getLogger("py4j.clientserver").warning("gone")

        assert [line.partition("Z ")[2] for line in _lines(tmp_path, "log")] == ["WARN  py4j.clientserver: gone"]


def test_what_the_program_prints_while_a_job_runs_is_kept_and_shown(tmp_path: Path) -> None:
    with plain_program() as terminal:
        stdout, stderr = sys.stdout, sys.stderr
        print("building")  # noqa: T201

        with driver_logged(LogSettings(str(tmp_path / "job"))) as log:
            log.job_started(JOB, "job", 1)
            log.job_started(JOB, "job", 1)  # after a failover
            print("1> a")  # noqa: T201
            print("b", file=sys.stderr)  # noqa: T201

        print("after")  # noqa: T201
        assert _lines(tmp_path, "out") == ["1> a", "b"]
        assert terminal.getvalue() == "building\n1> a\nb\nafter\n"
        assert (sys.stdout, sys.stderr) == (stdout, stderr)


def test_two_jobs_of_a_process_each_keep_what_it_prints(tmp_path: Path) -> None:
    with plain_program() as terminal:
        stdout = sys.stdout
        with driver_logged(LogSettings(str(tmp_path / "job"))) as first:
            first.job_started(JOB, "job", 1)
            with driver_logged(LogSettings(str(tmp_path / "other"))) as second:
                second.job_started(JOB, "other", 1)
                print("of both")  # noqa: T201
            print("of one")  # noqa: T201

        assert _lines(tmp_path, "out") == ["of both", "of one"]
        assert (tmp_path / "other" / "driver.out").read_text() == "of both\n"
        assert terminal.getvalue() == "of both\nof one\n"
        assert sys.stdout is stdout


def test_a_stream_that_another_has_put_in_place_stays(tmp_path: Path) -> None:
    with plain_program():
        panel = io.StringIO()

        with driver_logged(LogSettings(str(tmp_path / "job"))) as log:
            log.job_started(JOB, "job", 1)
            sys.stdout = panel

        assert sys.stdout is panel


@pytest.mark.parametrize("is_closed", [True, False])
def test_without_a_terminal_a_place_that_cannot_be_used_stops_nothing(tmp_path: Path, *, is_closed: bool) -> None:
    with plain_program():
        (tmp_path / "file").write_text("not a directory")
        terminal = io.StringIO()
        terminal.close()

        settings = LogSettings(str(tmp_path / "file" / "job"))
        with redirect_stderr(terminal if is_closed else None), driver_logged(settings) as log:
            log.write(logging.WARNING, "a")
