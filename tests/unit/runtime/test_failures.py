from __future__ import annotations

from checkdam.errors import SlotLostError, UserFunctionError
from checkdam.runtime.failures import find_error, to_text, user_error


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
    assert "in _caught" not in found.user_traceback  # the slot's own frame


def test_the_text_begins_with_words_for_people() -> None:
    assert to_text(SlotLostError("slot 3 is gone")).startswith("slot 3 is gone <")


def test_text_without_an_error_has_none() -> None:
    assert find_error("java.lang.OutOfMemoryError: heap <checkdam-errors>") is None


def test_a_long_record_is_shortened() -> None:
    error = _caught("y" * 10_000)

    assert len(error.record) < 600
    assert error.record.endswith("…")
