"""A Java that starts Spark quickly: short runs spend most of their time starting the JVM, largely loading classes.

`build/quick-java` is a JAVA_HOME whose `java` calls the real one with flags for short runs: it uses only the first
compiler tier, and it maps Spark's classes from an archive that an earlier JVM has written. The JVM ignores an archive
that does not match, such as one of another Java. For Python workers see `quick_daemon`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import zlib
from pathlib import Path

_BUILD = Path(__file__).parent.parent / "build"
_FLAGS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"

QUICK_JAVA = _BUILD / "quick-java"

_SCRIPT = """#!/bin/sh
# Written by chaos/warm_start.py.
archive={archive}
[ ! -e "$archive" ] || set -- "-XX:SharedArchiveFile=$archive" "$@"
exec {java} {flags} "$@"
"""


def make_quick_java() -> None:
    """Write `build/quick-java` anew, for the Java that would be used without it."""
    script = _SCRIPT.format(archive=shlex.quote(str(class_archive())), java=shlex.quote(_real_java()), flags=_FLAGS)
    java = QUICK_JAVA / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    written = java.with_name(f"java-{os.getpid()}")  # another process may be about to start the existing one
    written.write_text(script)
    written.chmod(0o755)
    written.rename(java)


def class_archive() -> Path:
    """Return the path of the archive for this Spark and Java, even if it is not written yet."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    jars = Path(spark.origin).parent / "jars"
    fits = zlib.crc32(f"{jars} {jars.stat().st_mtime_ns} {os.path.realpath(_real_java())}".encode())
    return _BUILD / f"spark-{importlib.metadata.version('pyspark')}-{fits:08x}.jsa"


def archiving_settings(target: Path) -> dict[str, str]:
    """Return settings for a driver whose JVM writes an archive when it ends."""
    return {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={target}"}


def quick_settings(master: str) -> dict[str, str]:
    """Return settings for a driver whose Python workers start quickly."""
    is_near = master.startswith("local[")  # else the workers do not have this package
    return {"spark.python.daemon.module": "chaos.quick_daemon"} if is_near else {}


def quick_environment() -> dict[str, str]:
    """Return the environment in which a process starts its JVMs with `build/quick-java`, if that exists."""
    return {"JAVA_HOME": str(QUICK_JAVA)} if (QUICK_JAVA / "bin" / "java").exists() else {}


def _real_java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and Path(home) != QUICK_JAVA:
        return f"{home}/bin/java"
    return shutil.which("java") or "java"
