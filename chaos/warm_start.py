"""What lets drivers start quickly: most of a round is the start of JVMs, and much of that is loading classes.

The JVM maps Spark's classes from an archive that an earlier one has written, and compiles its code only once. An
archive that does not fit, such as one of another Java, is ignored by the JVM. For Python workers see `quick_daemon`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

_OPTIONS = "spark.driver.extraJavaOptions"
_FLAGS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"

CLASS_ARCHIVE = Path(__file__).parent.parent / "build" / f"spark-{pyspark.__version__}.jsa"


def quick_settings(master: str) -> dict[str, str]:
    """Return settings for a driver that uses the archive, if there is one."""
    settings = {_OPTIONS: f"-XX:SharedArchiveFile={CLASS_ARCHIVE}"} if CLASS_ARCHIVE.exists() else {}
    if master.startswith("local["):  # else the workers are not where this package is
        settings["spark.python.daemon.module"] = "chaos.quick_daemon"
    return settings


def archiving_settings(target: Path) -> dict[str, str]:
    """Return settings for a driver whose JVM writes an archive when it ends."""
    return {_OPTIONS: f"-XX:ArchiveClassesAtExit={target}"}


def quick_environment() -> dict[str, str]:
    """Return what every JVM of a round finds in its environment."""
    return {"JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_FLAGS}".strip()}
