"""docs/testing.md: its test programs pass, and it names the whole kit."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.documented_programs import DocumentedPage

import checkdam.testing
from checkdam.testing import FunctionHarness

PAGE = DocumentedPage("testing.md")


@pytest.mark.parametrize(("function", "given"), list(PAGE.tests()))
def test_its_tests_pass(function: Any, given: dict[str, Any]) -> None:
    function(**given)


def test_the_example_of_the_readme_passes() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    [job] = [block for block in blocks if "class Visits" in block]
    [test] = [block for block in blocks if "FunctionHarness" in block]
    names: dict[str, Any] = {"__name__": "documented_readme"}

    exec(compile(job.partition("\n\nenv = ")[0] + test, "README.md", "exec"), names)

    names["test_the_first_visit_and_every_third_are_told"]()


def test_every_python_block_is_a_program_with_tests() -> None:
    PAGE.assert_every_block_is_a_program_with_tests()


@pytest.mark.parametrize("name", checkdam.testing.__all__)
def test_it_names_every_part_of_the_kit(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE.text)


def test_it_names_every_call_of_the_harness() -> None:
    public = [name for name, _ in inspect.getmembers(FunctionHarness) if not name.startswith("_") and name != "close"]

    assert [
        name for name in public if name != "processing_time" and not re.search(rf"`{name}\b|, `{name}", PAGE.text)
    ] == []
