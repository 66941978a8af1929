from __future__ import annotations

import base64
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkdam import errors
from checkdam.errors import CheckdamError, JobFailedError, SlotLostError, StorageError, UserFunctionError
from checkdam.graph.operators import MapKind, Operator
from checkdam.runtime.failures import ErrorMessage, find_error, to_text, user_error
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.operator_processes import make_process
from checkdam.types.batch import Batch
from checkdam.types.type_info import type_info

TOKEN = "5ec2e7"
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CheckdamError)]


def _fails(value: str) -> None:
    raise ValueError(f"cannot take {value}")


def _caught(record: object) -> UserFunctionError:
    try:
        _fails("x")
    except ValueError as cause:
        error = user_error("parse", record, cause)
        assert isinstance(error, UserFunctionError)
        return error
    raise AssertionError


def test_an_error_is_found_again_in_the_middle_of_other_text() -> None:
    error = SlotLostError("slot 3 is gone", hint="Wait.")

    found = find_error(f"py4j.Py4JJavaError: at line 1\n\t{to_text(error, TOKEN)}\n\tat org.apache.spark", TOKEN)

    assert isinstance(found, SlotLostError)
    assert str(found) == str(error)


def test_a_user_error_keeps_operator_record_and_traceback_on_its_way_through_text() -> None:
    found = find_error(to_text(_caught({"a": 1}), TOKEN), TOKEN)

    assert isinstance(found, UserFunctionError)
    assert (found.operator, found.record, found.cause) == ("parse", "{'a': 1}", "ValueError: cannot take x")
    assert "in _fails" in found.user_traceback


def test_a_users_traceback_has_their_frames_and_none_of_the_runtimes() -> None:
    operator = Operator(1, "parse", MapKind(_fails), (0,), type_info(str))
    process = make_process(operator, context=FunctionContext("parse", 0, 1, None), store=None, writer=None)

    with pytest.raises(UserFunctionError) as caught:
        process(Batch(type_info(str), rows=["x"]), None)

    assert "in _fails" in caught.value.user_traceback
    assert "operators.py" not in caught.value.user_traceback


def test_the_text_begins_with_words_for_people() -> None:
    assert to_text(SlotLostError("slot 3 is gone"), TOKEN).startswith("slot 3 is gone <")


def test_text_without_an_error_has_none() -> None:
    assert find_error("java.lang.OutOfMemoryError: heap <checkdam-errors>", TOKEN) is None


def test_a_long_record_is_shortened() -> None:
    error = _caught("y" * 10_000)

    assert len(error.record) < 600
    assert error.record.endswith("…")


class _Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._file),)


def test_a_record_that_looks_like_an_error_is_text_and_runs_nothing(tmp_path: Path) -> None:
    payload = base64.b64encode(pickle.dumps(_Bomb(tmp_path / "ran"))).decode()

    for mark in (f"<checkdam-error:{payload}>", f"<checkdam-error:{'0' * 64}:{payload}>"):
        assert find_error(f"ValueError: cannot parse {mark}", TOKEN) is None

    assert not (tmp_path / "ran").exists()


def test_a_forged_error_in_front_does_not_hide_the_real_one() -> None:
    forged = to_text(SlotLostError("forged"), "another token")
    real = _caught(forged)

    found = find_error(to_text(real, TOKEN), TOKEN)

    assert isinstance(found, UserFunctionError)
    assert found.operator == "parse"


def test_an_error_of_another_attempt_or_one_that_was_altered_is_text() -> None:
    text = to_text(SlotLostError("slot 3 is gone"), TOKEN)
    mark = text[text.index("<") :]

    assert find_error(text, "the next attempt's") is None
    assert find_error(mark.replace("=>", ">").replace("ey", "eY", 1), TOKEN) is None
    assert find_error(text, TOKEN) is not None


def test_the_token_is_never_part_of_the_text() -> None:
    assert TOKEN not in to_text(_caught("x"), TOKEN)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not UserFunctionError])
def test_every_kind_of_error_crosses_with_message_hint_and_notes(kind: type[CheckdamError]) -> None:
    error = kind("the thing is wrong", hint="Mend it.")
    error.add_note("and then: it broke")

    again = ErrorMessage.of(error).error()

    assert type(again) is kind
    assert (again.message, again.hint, again.__notes__) == ("the thing is wrong", "Mend it.", ["and then: it broke"])


def test_a_user_error_keeps_its_subtask() -> None:
    error = _caught("x")
    error.subtask = 3

    again = ErrorMessage.of(error).error()

    assert isinstance(again, UserFunctionError)
    assert again.subtask == 3
    assert str(again) == str(error)


def test_an_error_that_is_none_of_ours_is_a_failure_of_the_job_and_a_subclass_its_nearest_kind() -> None:
    class _DiskFullError(StorageError):
        pass

    assert type(ErrorMessage.of(KeyError("x")).error()) is JobFailedError
    assert type(ErrorMessage.of(_DiskFullError("full")).error()) is StorageError


@pytest.mark.parametrize("kind", ["os", "Exception", "_rebuild", "CheckdamErrors", "", "UserFunctionError"])
def test_a_message_that_names_no_error_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an error"):
        ErrorMessage(kind, "message").error()


def test_a_message_is_bounded_whatever_the_error_holds() -> None:
    try:
        _fails("z" * 10_000_000)
    except ValueError as cause:
        text = to_text(user_error("parse", "y" * 10_000_000, cause), TOKEN)

    assert len(text) < 500_000
    assert isinstance(find_error(text, TOKEN), UserFunctionError)


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_crosses_also_half_characters(message: str, before: str) -> None:
    found = find_error(before + to_text(SlotLostError(message), TOKEN), TOKEN)

    assert isinstance(found, SlotLostError)
    assert found.message == message.encode("utf-8", "backslashreplace").decode()
