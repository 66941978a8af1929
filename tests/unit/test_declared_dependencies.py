"""Every package that the library imports is one that its installation brings."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = {"dev", "bench"}


def _imported() -> Iterator[tuple[str, str]]:
    """The top-level packages that are not of Python's own, each with a file that imports it."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                names = [node.module]
            for package in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"checkdam"}:
                yield package, str(file.relative_to(ROOT))


def _declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for name, each in project["optional-dependencies"].items() if name not in FOR_DEVELOPERS]
    requirements = [each for declared in (project["dependencies"], *extras) for each in declared]
    return {_normal(re.split(r"[\[<>=!~; ]", each)[0]) for each in requirements}


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_every_package_that_is_imported_is_declared() -> None:
    distributions, declared = packages_distributions(), _declared()

    missing = {
        (package, file)
        for package, file in _imported()
        if not {_normal(each) for each in distributions.get(package, [package])} & declared
    }

    assert missing == set()
