"""Every test of windows runs on both backends."""

from __future__ import annotations

import pytest
from tests.support.one_window import BACKENDS


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
