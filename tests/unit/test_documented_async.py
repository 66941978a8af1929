"""docs/async.md: its test programs pass, and it names every argument of map_async and AsyncRetry."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
from tests.support.documented_programs import DocumentedPage

from checkdam import AsyncRetry, DataStream

PAGE = DocumentedPage("async.md")


@pytest.mark.parametrize(("function", "given"), list(PAGE.tests()))
def test_its_tests_pass(function: Any, given: dict[str, Any]) -> None:
    function(**given)


def test_every_python_block_is_a_program_with_tests() -> None:
    PAGE.assert_every_block_is_a_program_with_tests()


def test_it_names_every_argument() -> None:
    arguments = [*inspect.signature(DataStream.map_async).parameters][1:]
    fields = [field.name for field in dataclasses.fields(AsyncRetry)]

    assert [name for name in arguments if f"`{name}`" not in PAGE.text] == []
    assert [name for name in fields if f"{name}=" not in PAGE.text] == []
