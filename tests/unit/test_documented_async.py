"""docs/async.md: its test programs pass, and it names every argument of map_async and AsyncRetry."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkdam import AsyncRetry, DataStream

PAGE = (Path(__file__).parents[2] / "docs" / "async.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)


def documented_tests() -> Iterator[Any]:
    for name, program in PROGRAMS:
        names: dict[str, Any] = {"__name__": f"documented_{name}"}
        exec(compile(program, f"docs/async.md: {name}.py", "exec"), names)
        for test, function in names.items():
            if test.startswith("test_"):
                yield pytest.param(function, id=f"{name}-{test}")


@pytest.mark.parametrize("function", list(documented_tests()))
def test_its_tests_pass(function: Any) -> None:
    function()


def test_every_python_block_is_a_program_with_tests() -> None:
    assert len(PROGRAMS) == PAGE.count("```python")
    assert all("def test_" in program for _, program in PROGRAMS)


def test_it_names_every_argument() -> None:
    arguments = [*inspect.signature(DataStream.map_async).parameters][1:]
    fields = [field.name for field in dataclasses.fields(AsyncRetry)]

    assert [name for name in arguments if f"`{name}`" not in PAGE] == []
    assert [name for name in fields if f"{name}=" not in PAGE] == []
