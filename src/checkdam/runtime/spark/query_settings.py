"""The settings with which the streaming query of a job keeps its logs, at a small fixed cost for each epoch.

Decision record 0056 has the figures.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

_LOG_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_SETTINGS = {
    # The query directory is scratch space on this machine, of which a checkpoint copies what it needs. By default,
    # Spark starts several processes for each file of its logs: to change its mode, and to see whether it is a link.
    "spark.sql.streaming.checkpointFileManagerClass": _LOG_FILES,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # Spark describes the plan of every micro-batch
}

_setting = threading.Lock()


@contextmanager
def settings_for_query(session: SparkSession) -> Iterator[None]:
    """Change the session's settings while a query starts, which copies them."""
    with _setting:  # two jobs of one session would restore each other's settings
        before = {name: session.conf.get(name, None) for name in _SETTINGS}
        try:
            for name, value in _SETTINGS.items():
                session.conf.set(name, value)
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, value)


def session_for_sources(session: SparkSession) -> SparkSession:
    """Return a copy of the session to open a source with: a file source logs its files by the settings of that."""
    copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    for name, value in _SETTINGS.items():
        copy.conf.set(name, value)
    return copy


def moved_to(session: SparkSession, opened: DataFrame) -> DataFrame:
    """Return a DataFrame of this session for a source that was opened with another."""
    datasets = getattr(session.sparkContext._jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(session._jsparkSession, opened._jdf.queryExecution().analyzed()), session)
