from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.keyed_stores import BACKENDS, opened

from checkdam.backends import KeyedStateBackend
from checkdam.testing import MemoryStorage


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[KeyedStateBackend]:
    yield BACKENDS[request.param]
    while opened:
        opened.pop().close()


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()
