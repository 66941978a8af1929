"""`checkdam run` as far as it goes without Spark: settings, and everything that is wrong before anything runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.support.waiting import poll

from checkdam import config
from checkdam.cli.job_server import Hosting
from checkdam.cli.main import command_line
from checkdam.cli.options import load_configuration
from checkdam.cli.run import SPARK_LOG, command_with
from checkdam.config import Configuration
from checkdam.server.catalog import registry

PREPARED = """
from checkdam import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["a", "b"]).key_by(lambda word: word, key_type=str)
count = lambda a, b: a
"""


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(program: str, *options: str) -> int:
    Path("job.py").write_text(program)
    return command_line(["run", *options, "job.py"])


def test_the_command_line_wins_over_the_file_in_the_current_directory() -> None:
    Path("checkdam.yaml").write_text("parallelism.default: 3\npipeline.name: from file\n")

    settings = load_configuration(["parallelism.default=4"], None, {"parallelism.default": "5"})

    assert settings.get(config.DEFAULT_PARALLELISM) == 5
    assert settings.get(config.PIPELINE_NAME) == "from file"


def test_a_file_that_is_named_takes_the_place_of_the_one_in_the_current_directory() -> None:
    Path("checkdam.yaml").write_text("pipeline.name: here\n")
    Path("other.yaml").write_text("pipeline.name: there\n")

    assert load_configuration([], Path("other.yaml")).get(config.PIPELINE_NAME) == "there"


def test_verbose_turns_sparks_log_on_unless_a_level_is_given() -> None:
    assert load_configuration([SPARK_LOG], None).spark_settings() == {"spark.log.level": "WARN"}
    given = load_configuration([SPARK_LOG, "spark.log.level=INFO"], None)
    assert given.spark_settings() == {"spark.log.level": "INFO"}


def test_the_command_to_resume_repeats_what_the_job_needs() -> None:
    needed = Path("my job.py"), ["a.b=1 2"], {"-p": "4", "--master": None}, ["--input", "x"]

    assert command_with(["-s", "a b/chk-4"], *needed) == (
        "checkdam run -D 'a.b=1 2' -p 4 'my job.py' -s 'a b/chk-4' -- --input x"
    )
    assert command_with(["--resume", "latest"], *needed) == (
        "checkdam run -D 'a.b=1 2' -p 4 'my job.py' --resume latest -- --input x"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "none.py"], 'error: job file "none.py" does not exist. Give the path of a Python program.\n'),
        (["run", "-D", "parallelism", "none.py"], 'error: "parallelism" is not a setting. Write -D key=value'),
        (["run", "-D", "paralelism.default=2", "none.py"], 'Did you mean "parallelism.default"?'),
        (["run", "-p", "many", "none.py"], 'error: setting "parallelism.default" is "many", which is not'),
        (["run", "--config", "none.yaml", "none.py"], 'error: settings file "none.yaml" cannot be read'),
        (["run", "-s", "x", "--resume", "latest", "none.py"], "error: -s and --resume cannot be combined."),
        (["run", "--take-over", "none.py"], "error: --take-over needs --resume or -s: a new job has no other owner."),
        (
            ["run", "-cm", "claim", "none.py"],
            "error: --claim-mode needs -s.",
        ),
        (["run", "-s", "x", "-rm", "legacy", "none.py"], "error: restore mode LEGACY is not supported"),
        (["run", "-s", "x", "--claim-mode", "mine", "none.py"], 'claim-mode" is "mine", which is not one of NO_CLAIM'),
        (["run", "--port", "web", "none.py"], 'error: setting "rest.port" is "web", which is not'),
        (
            ["run", "-D", "rest.bind-address=0.0.0.0", "job.py"],
            'error: setting "rest.bind-address" is "0.0.0.0", where other machines can reach the server',
        ),
        (["run", "--resume", "newest", "none.py"], "error: Invalid value for '--resume'"),
        (["run", "--frm", "none.py"], 'See "checkdam run --help".'),
        (["run"], "error: Missing argument 'JOB'"),
        (["walk"], 'error: there is no command "walk"'),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command_line(arguments)

    said = capsys.readouterr()
    assert code == 2
    assert told in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("ending", "options", "told"),
    [
        ("words.reduce(count).print()\nenv.execute()", ["-p", "2"], "uid"),
        (
            "words.reduce(count).uid('u').union(words.reduce(count).uid('u')).print()\nenv.execute()",
            ["-p", "2"],
            '"u"',
        ),
        ("words.reduce(count).uid('u').print()\nenv.execute()", ["-p", "200"], "max parallelism"),
        (
            "words.reduce(count).uid('u').print()\nenv.execute('job')",
            ["-p", "2", "--resume", "latest"],
            "no checkpoint directory is set. Set state.checkpoints.dir",
        ),
        ("words.print()", [], 'job file "job.py" does not call env.execute()'),
    ],
    ids=["no uid", "uid twice", "parallelism", "nothing to resume", "no execute"],
)
def test_a_job_that_cannot_run_is_one_line_and_exit_code_2(
    ending: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = _run(PREPARED + ending, *options)

    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("error: ")
    assert told in said
    assert said.count("\n") == 1


def test_a_checkpoint_that_is_not_there_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = _run(PREPARED + "words.reduce(count).uid('u').print()\nenv.execute()", "-p", "2", "-s", "nowhere/chk-4")

    said = capsys.readouterr().err
    assert code == 1
    assert said.startswith('error: there is no completed checkpoint or savepoint in "nowhere/chk-4".')
    assert said.count("\n") == 1


def test_a_module_that_is_missing_shows_the_users_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    code = _run("import checkdam\nimport not_there_at_all")

    said = capsys.readouterr().err
    assert code == 2
    assert 'job.py", line 2, in <module>' in said
    assert said.endswith(
        "error: job file \"job.py\" cannot be loaded: ModuleNotFoundError: No module named 'not_there_at_all'\n"
    )
    assert said.count("  File ") == 1


def test_an_exception_of_the_program_shows_the_users_traceback_and_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = _run("def f():\n    return {}['key']\nf()")

    said = capsys.readouterr().err
    assert code == 1
    assert said.count("  File ") == 2
    assert said.endswith("KeyError: 'key'\n")


def test_a_program_that_exits_decides_the_exit_code() -> None:
    with pytest.raises(SystemExit) as ended:
        _run("import sys\nsys.exit(7)")

    assert ended.value.code == 7


WITHOUT_SPARK = """
from checkdam import StreamExecutionEnvironment
from checkdam.testing import Gate
from checkdam.testing.local_target import LocalTarget

env = StreamExecutionEnvironment.get_execution_environment({"state.checkpoints.dir": "checkpoints"})
env._launch.target = LocalTarget(until=Gate())
words = env.from_collection([("a", 1), ("b", 1), ("a", 1)]).key_by(0).sum(1).uid("count")
"""


def test_a_job_in_the_background_is_suspended_when_its_program_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    code = _run(WITHOUT_SPARK + "words.print()\nenv.execute_async('left').trigger_checkpoint().result(60)", "--no-rest")

    assert code == 0
    assert "suspended" in capsys.readouterr().err
    assert list(Path("checkpoints").glob("*/chk-*/_metadata"))


def test_a_job_that_the_program_itself_ends_is_no_cancelled_program(capsys: pytest.CaptureFixture[str]) -> None:
    code = _run(WITHOUT_SPARK + "print(sorted(words.execute_and_collect(limit=3)))", "--no-rest")

    assert code == 0
    assert capsys.readouterr().out == "[('a', 1), ('a', 2), ('b', 1)]\n"


FAILS = """
from checkdam import NoRestart
def fail(value):
    raise ValueError("a bad record")
env.set_restart_strategy(NoRestart())
words.map(fail).print()
env.execute("fails")
"""


@pytest.mark.slow
def test_the_last_line_says_where_the_page_of_a_failed_job_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "default_directory", lambda: tmp_path / "checkdam-me" / "servers")
    given = Configuration.load(None, {"rest.port": "0"})

    codes = [_run(WITHOUT_SPARK + FAILS, "--port", "0")]
    alone = capsys.readouterr().err.splitlines()[-1]
    with Hosting(given, ["checkpoints"], is_standing=True) as host:
        codes.append(_run(WITHOUT_SPARK + FAILS, "--port", "0"))
        said = capsys.readouterr().err
        job_id = re.findall(r"started: id (\w+)", said)[0]
        page = httpx.get(f"{host.url}/jobs/{job_id}")

    assert codes == [1, 1]
    assert alone == f"to see the job's page: checkdam serve --dir {tmp_path / 'checkpoints'}"
    assert said.splitlines()[-1] == f"the job's page: {host.url}/#/jobs/{job_id}"
    assert page.json()["state"] == "FAILED"


def test_a_failed_job_that_leaves_nothing_has_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    program = WITHOUT_SPARK.replace('{"state.checkpoints.dir": "checkpoints"}', "")

    assert _run(program + FAILS, "--port", "0") == 1
    assert "the job's page" not in capsys.readouterr().err


INTERRUPTED = """
import os, signal
from checkdam.testing import Step, Trouble

interrupt = Trouble(Step.EPOCH_ENDED, lambda engine, moment: os.kill(os.getpid(), signal.SIGINT))
env._launch.target = LocalTarget([interrupt], until=Gate())
words.print()
env.execute("interrupted")
"""


def test_a_job_that_ctrl_c_cancels_is_exit_code_130() -> None:
    assert _run(WITHOUT_SPARK + INTERRUPTED, "--no-rest") == 130


def test_a_program_that_raises_suspends_its_job_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code = _run(
        WITHOUT_SPARK
        + "words.print()\nenv.execute_async('left').trigger_checkpoint().result(60)\nraise ValueError('oops')",
        "--no-rest",
    )

    assert code == 1
    assert "ValueError: oops" in capsys.readouterr().err
    assert list(Path("checkpoints").glob("*/chk-*/_metadata"))


@pytest.mark.parametrize(("options", "code"), [([], 3), (["--allow-repeated-output"], 4)])
def test_repeated_output_is_allowed_by_a_flag_that_is_a_setting(options: list[str], code: int) -> None:
    program = "import checkdam.config as c; raise SystemExit(3 + env.configuration.get(c.ALLOW_REPEATED_OUTPUT))"

    with pytest.raises(SystemExit) as ended:
        _run(PREPARED + program, *options)

    assert ended.value.code == code


def test_a_server_that_must_not_be_is_refused_before_the_program_runs() -> None:
    Path("job.py").write_text("open('it ran', 'w')")

    assert command_line(["run", "-D", "rest.bind-address=0.0.0.0", "job.py"]) == 2
    assert not Path("it ran").exists()


def test_without_a_server_its_settings_do_not_matter() -> None:
    Path("job.py").write_text("import sys; sys.exit(7)")

    with pytest.raises(SystemExit) as ended:
        command_line(["run", "--no-rest", "-D", "rest.bind-address=0.0.0.0", "job.py"])
    assert ended.value.code == 7


def test_version_and_help_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["--version"]) == 0
    assert command_line(["run", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("checkdam 0.")
    assert "--resume latest" in said
    assert "--resume auto" in said


WAITS = """
import pathlib, time
pathlib.Path("running").touch()
time.sleep(60)
"""


@pytest.mark.slow
def test_sigterm_before_the_job_runs_ends_the_program_in_order(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(WAITS)
    command = [sys.executable, "-m", "checkdam.cli", "run", "--no-rest", "job.py"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        poll((tmp_path / "running").exists)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (143, "terminated before the job was running\n")


HANGS = """
import os, pathlib, sys
from concurrent.futures import Future
from datetime import timedelta
from checkdam.api import signals
from checkdam.testing.local_job import LocalJob
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.trouble import Step, Trouble

signals._INIT = os.getpid() if "init" in sys.argv else -1
hang = Trouble(Step.BEFORE_LEVEL, lambda engine, moment: engine.wait_for(Future()))
show = lambda env, words: words.rebalance().map(str.upper).print()
job = LocalJob(show, [["a"], ["b"]], MemoryStorage(), troubles=[hang])
job.heard.progressed = lambda what: pathlib.Path("suspending").touch()
job.start()
with signals.ended_by_signals(job._master, timedelta(hours=1)):
    hang.happened.wait(60)
    pathlib.Path("running").touch()
    job.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("process_is", "code"), [("any", -signal.SIGTERM), ("init", 143)])
def test_a_second_sigterm_does_not_wait_for_the_last_checkpoint(tmp_path: Path, process_is: str, code: int) -> None:
    """The first process of a container is not ended by a signal that it has no handler for."""
    (tmp_path / "job.py").write_text(HANGS)
    with subprocess.Popen([sys.executable, "job.py", process_is], cwd=tmp_path) as process:
        for mark in ("running", "suspending"):
            poll((tmp_path / mark).exists)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == code
