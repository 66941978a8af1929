"""The programs of a page in docs/: Python blocks whose first line names a test file, and which contain tests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


class DocumentedPage:
    """The text of a page, and the programs in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (DOCS / name).read_text(encoding="utf-8")
        self.programs: list[tuple[str, str]] = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", self.text, re.DOTALL)

    def tests(self) -> Iterator[Any]:
        """Yield each test function of each program, once for each combination of its parameters."""
        for name, program in self.programs:
            names: dict[str, Any] = {"__name__": f"documented_{name}"}
            exec(compile(program, f"docs/{self.name}: {name}.py", "exec"), names)
            for test, function in names.items():
                if test.startswith("test_"):
                    marks = [mark.args for mark in getattr(function, "pytestmark", ())]
                    for values in itertools.product(*(of for _, of in marks)):
                        given = dict(zip((argument for argument, _ in marks), values, strict=True))
                        yield pytest.param(function, given, id="-".join([name, test, *map(str, values)]))

    def assert_every_block_is_a_program_with_tests(self) -> None:
        assert len(self.programs) == self.text.count("```python")
        assert all("def test_" in program for _, program in self.programs)
