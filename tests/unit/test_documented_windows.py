"""docs/windows.md: its test programs pass, and it names every assigner, trigger and evictor."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from tests.support.documented_programs import DocumentedPage

import checkdam
from checkdam import Evictor, Trigger, WindowAssigner

PAGE = DocumentedPage("windows.md")
KINDS = (WindowAssigner, Trigger, Evictor)


@pytest.mark.parametrize(("function", "given"), list(PAGE.tests()))
def test_its_tests_pass(function: Any, given: dict[str, Any]) -> None:
    function(**given)


def test_every_python_block_is_a_program_with_tests() -> None:
    PAGE.assert_every_block_is_a_program_with_tests()


def test_it_names_every_assigner_trigger_and_evictor() -> None:
    public = [getattr(checkdam, name) for name in checkdam.__all__]
    kinds = [kind.__name__ for kind in public if inspect.isclass(kind) and issubclass(kind, KINDS)]

    assert len(kinds) > 20
    assert [name for name in kinds if not re.search(rf"`{name}\b", PAGE.text)] == []
