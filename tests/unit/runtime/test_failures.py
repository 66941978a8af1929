from __future__ import annotations

import pytest

from checkdam.errors import SlotLostError, UserFunctionError
from checkdam.graph.operators import MapKind, Operator
from checkdam.runtime.failures import find_error, to_text, user_error
from checkdam.runtime.slot.context import FunctionContext
from checkdam.runtime.slot.operators import make_process
from checkdam.state.batch import Batch
from checkdam.state.types import type_info


def _fails(value: str) -> None:
    raise ValueError(f"cannot take {value}")


def _caught(record: object) -> UserFunctionError:
    try:
        _fails("x")
    except ValueError as cause:
        return user_error("parse", record, cause)
    raise AssertionError


def test_an_error_is_found_again_in_the_middle_of_other_text() -> None:
    error = SlotLostError("slot 3 is gone", hint="Wait.")

    found = find_error(f"py4j.Py4JJavaError: at line 1\n\t{to_text(error)}\n\tat org.apache.spark")

    assert isinstance(found, SlotLostError)
    assert str(found) == str(error)


def test_a_user_error_keeps_operator_record_and_traceback_on_its_way_through_text() -> None:
    found = find_error(to_text(_caught({"a": 1})))

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
    assert to_text(SlotLostError("slot 3 is gone")).startswith("slot 3 is gone <")


def test_text_without_an_error_has_none() -> None:
    assert find_error("java.lang.OutOfMemoryError: heap <checkdam-errors>") is None


def test_a_long_record_is_shortened() -> None:
    error = _caught("y" * 10_000)

    assert len(error.record) < 600
    assert error.record.endswith("…")
