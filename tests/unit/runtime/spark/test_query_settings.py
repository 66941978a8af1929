"""The settings with which a query starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkdam.runtime.spark.query_settings import settings_for_query

FILES = "spark.sql.streaming.checkpointFileManagerClass"
EXPLAIN = "spark.sql.ui.explainMode"


class _Conf:
    """The settings of a session that were set."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


def _session(conf: _Conf) -> Any:
    return SimpleNamespace(conf=conf)


def test_a_query_starts_with_settings_that_its_session_does_not_keep() -> None:
    conf = _Conf(**{EXPLAIN: "extended", "spark.sql.shuffle.partitions": "7"})

    with settings_for_query(_session(conf)):
        during = dict(conf.settings)

    assert during[EXPLAIN] == "simple"
    assert during[FILES].endswith(".FileSystemBasedCheckpointFileManager")
    assert conf.settings == {EXPLAIN: "extended", "spark.sql.shuffle.partitions": "7"}


def test_a_query_that_does_not_start_leaves_the_session_as_it_was() -> None:
    conf = _Conf()

    with pytest.raises(ValueError, match="no such source"), settings_for_query(_session(conf)):
        raise ValueError("no such source")

    assert conf.settings == {}
