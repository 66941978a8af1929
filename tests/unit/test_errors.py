from __future__ import annotations

import pickle

import pytest

from checkdam import errors
from checkdam.errors import CheckdamError, UsageError, UserFunctionError


def all_kinds(kind: type[CheckdamError] = CheckdamError) -> list[type[CheckdamError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in all_kinds(each))]


PLAIN = [kind for kind in all_kinds() if kind is not UserFunctionError and kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_survives_pickling_with_its_hint(kind: type[CheckdamError]) -> None:
    error = kind("the thing is wrong", hint="Mend it.")

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert (str(again), again.hint) == ("the thing is wrong. Mend it.", "Mend it.")


def test_a_user_error_survives_pickling_with_all_it_knows() -> None:
    error = UserFunctionError(operator="map", record="'x'", cause="ValueError: no", user_traceback="line 1\n")

    again = pickle.loads(pickle.dumps(error))

    assert (again.operator, again.record, again.cause, again.user_traceback) == (
        "map",
        "'x'",
        "ValueError: no",
        "line 1\n",
    )
    assert str(again) == "operator \"map\" failed on record 'x': ValueError: no"


def test_only_what_the_user_said_wrong_exits_with_2() -> None:
    assert {kind.exit_code for kind in PLAIN if issubclass(kind, UsageError)} == {2}
    assert {kind.exit_code for kind in PLAIN if not issubclass(kind, UsageError)} == {1}


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in PLAIN if kind.__name__ not in errors.__doc__] == []
