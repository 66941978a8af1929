"""docs/testing.md: its test programs pass, and it names the whole kit."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import checkdam.testing
from checkdam.testing import FunctionHarness

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)


def documented_tests() -> Iterator[Any]:
    """Each test function of each program, once for each combination of its parameters."""
    for name, program in PROGRAMS:
        names: dict[str, Any] = {"__name__": f"documented_{name}"}
        exec(compile(program, f"docs/testing.md: {name}.py", "exec"), names)
        for test, function in names.items():
            if test.startswith("test_"):
                marks = [mark.args for mark in getattr(function, "pytestmark", ())]
                for values in itertools.product(*(of for _, of in marks)):
                    given = dict(zip((argument for argument, _ in marks), values, strict=True))
                    yield pytest.param(function, given, id=f"{name}-{test}-{'-'.join(map(str, values))}")


@pytest.mark.parametrize(("function", "given"), list(documented_tests()))
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
    assert len(PROGRAMS) == PAGE.count("```python")
    assert all("def test_" in program for _, program in PROGRAMS)


@pytest.mark.parametrize("name", checkdam.testing.__all__)
def test_it_names_every_part_of_the_kit(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


def test_it_names_every_call_of_the_harness() -> None:
    public = [name for name, _ in inspect.getmembers(FunctionHarness) if not name.startswith("_") and name != "close"]

    assert [name for name in public if name != "processing_time" and not re.search(rf"`{name}\b|, `{name}", PAGE)] == []
