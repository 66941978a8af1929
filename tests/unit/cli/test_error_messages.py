from __future__ import annotations

import click
import pytest

from checkdam.cli.error_messages import errors_printed, rendered, user_traceback
from checkdam.errors import CheckdamError, ConfigError, JobFailedError, UserFunctionError


@pytest.mark.parametrize(("error", "code"), [(JobFailedError("it broke"), 1), (ConfigError("it is wrong"), 2)])
def test_an_error_is_one_line_and_its_exit_code(
    error: CheckdamError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.exceptions.Exit) as ended, errors_printed(verbose=False):
        raise error

    assert ended.value.exit_code == code
    assert capsys.readouterr().err == f"error: {error.message}\n"


def test_verbose_adds_the_stack(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit), errors_printed(verbose=True):
        raise JobFailedError("it broke")

    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_message_of_several_lines_is_told_on_one() -> None:
    assert rendered(JobFailedError("first\n  second\n", hint="Do\nthis.")) == "error: first second . Do this."


def test_a_rejected_record_shows_the_users_traceback_the_operator_and_the_record() -> None:
    error = UserFunctionError(
        operator="parse", record="'x'", cause="ValueError: no number", user_traceback="their frames\n"
    )

    assert rendered(error) == "their frames\nerror: operator \"parse\" failed on record 'x': ValueError: no number"


def _in_library() -> None:
    with errors_printed(verbose=False):  # a frame of ours between two of the user's
        raise KeyError("lost")


def test_a_users_exception_is_shown_without_our_frames() -> None:
    try:
        _in_library()
    except KeyError as error:
        told = user_traceback(error)

    assert "in _in_library" in told
    assert told.endswith("KeyError: 'lost'")
    assert "checkdam/cli/error_messages.py" not in told
    assert "contextlib" not in told


def test_a_cause_in_the_users_code_is_shown_too() -> None:
    def fails() -> None:
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError("no number") from error

    try:
        fails()
    except RuntimeError as error:
        told = user_traceback(error)

    assert "invalid literal" in told
    assert told.endswith("RuntimeError: no number")


class _Py4JJavaError(Exception):
    """An exception whose text goes on with a stack of the JVM, as those of py4j do."""


_Py4JJavaError.__module__ = "py4j.protocol"


def test_of_an_exception_from_the_jvm_only_the_first_line_is_shown() -> None:
    told = user_traceback(_Py4JJavaError("it is not there\n\tat java.base/java.lang.Thread.run"))

    assert told == "_Py4JJavaError: it is not there"


def test_of_an_exception_in_a_spark_worker_the_workers_own_error_is_shown() -> None:
    worker = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\nOSError: no space\n'

    told = user_traceback(_Py4JJavaError(f"An exception was thrown from the Python worker:\n{worker}\tat java.Thread"))

    assert told == "_Py4JJavaError: OSError: no space"
