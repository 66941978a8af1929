from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.server.serving import Served, serving

from checkdam.config import Configuration


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Served]:
    yield from serving(Configuration())


@pytest.fixture
def served(shared_server: Served) -> Served:
    return shared_server.renew()
