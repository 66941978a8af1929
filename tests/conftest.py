"""What all tests share: a quick Java, an order that keeps workers busy, fewer examples and less garbage collection."""

from __future__ import annotations

import gc
import os
import tempfile

import pytest
from chaos.warm_start import quick_environment
from hypothesis import settings
from tests.support.examples import examples


def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(quick_environment())
    os.environ["XDG_STATE_HOME"] = f"{tempfile.gettempdir()}/checkdam-tests-{os.getuid()}"  # log files of jobs
    settings.register_profile("checkdam", max_examples=examples(settings().max_examples))
    settings.load_profile("checkdam")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start tests first that may take longest, so that none of them runs alone when all others are done."""
    items.sort(key=_seconds_allowed, reverse=True)


def pytest_collection_finish() -> None:
    """Let the garbage collector skip what was collected, which stays to the end, and look less often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _seconds_allowed(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(item.config.getini("timeout") if mark is None else mark.args[0])
