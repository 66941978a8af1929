"""The Spark session of a job, with the few settings that Checkdam depends on."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checkdam.errors import UsageError
from checkdam.runtime.spark.jvm import (
    JAVA_OPTIONS,
    JvmNotStartedError,
    is_on_one_machine,
    leave_sigterm_to_driver,
    start_quietly,
)
from checkdam.state_reader.spark_source import register

_LONGEST_SOCKET_DIRECTORY = 80  # the path of a Unix socket is limited to about a hundred bytes
DEFAULT_MASTER = "local[*]"
_LONGEST_WORKER_DIRECTORY = 60 if sys.platform == "linux" else 59  # in bytes; Spark refuses a longer one
_LOG_LEVEL = "spark.log.level"
_JAVA_TMPDIR = "-Djava.io.tmpdir="
_WORKER_SOCKETS = "spark.python.unix.domain.socket.enabled"
_WORKER_SOCKETS_DIRECTORY = "spark.python.unix.domain.socket.dir"
_STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"
"""How long to wait for a query to end. Spark waits for ever by default."""

_DEFAULTS = {
    "spark.app.name": "checkdam",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    _STOP_TIMEOUT: "30s",
}

_REQUIRED = {
    "spark.sql.adaptive.enabled": "false",  # adaptive execution would merge the partitions that stand for subtasks
    "spark.speculation": "false",  # a slot must see each record once
    "spark.task.maxFailures": "1",  # a failed task is the job's failure: the failover replays the epoch
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.worker.reuse": "true",
}


def spark_session(settings: Mapping[str, str], local_dir: str) -> SparkSession:
    """Return the session of this process, created if there is none; an existing session is used as it is."""
    _find_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    running = running_session()
    if running is not None:
        running.sparkContext.pythonExec = sys.executable
        running.conf.set("spark.sql.adaptive.enabled", "false")
        if running.conf.get(_STOP_TIMEOUT) == "0":
            running.conf.set(_STOP_TIMEOUT, _DEFAULTS[_STOP_TIMEOUT])
        return running
    os.environ.setdefault("SPARK_WORKER_DIR", f"{local_dir}/work")  # where local-cluster's executors run
    master = settings.get("spark.master", DEFAULT_MASTER)
    merged = complete_settings(settings, master, local_dir)
    _keep_private(merged, local_dir)
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(merged.items()))
    try:
        if _LOG_LEVEL not in settings:
            start_quietly(conf)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        leave_sigterm_to_driver(session)
        register(session)  # spark.read.format("checkdam")
        return session
    except (PySparkException, Py4JError, JvmNotStartedError) as error:
        raise UsageError(
            f'Spark does not start on "{master}": {_first_line(error)}',
            hint="Check --master, the spark.* settings and the Java installation; -v shows Spark's log.",
        ) from error


def complete_settings(settings: Mapping[str, str], master: str, local_dir: str) -> dict[str, str]:
    """Return the user's settings with those that a new session has besides."""
    near: dict[str, str] = {}
    if master.startswith("local"):
        near = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if len(os.fsencode(local_dir)) <= _LONGEST_WORKER_DIRECTORY:
            # Over TCP each task waits 40 ms: Spark sends its input in small parts, and the system holds back each part
            # until the one before is acknowledged.
            near |= {_WORKER_SOCKETS: "true", _WORKER_SOCKETS_DIRECTORY: local_dir}
    return {**_DEFAULTS, **near, "spark.local.dir": local_dir, **settings, **_REQUIRED}


def _keep_private(settings: dict[str, str], local_dir: str) -> None:
    """Keep the JVM's temporary files, including libraries it loads, in a directory that no other user can enter."""
    os.makedirs(local_dir, mode=0o700, exist_ok=True)
    options = settings.get(JAVA_OPTIONS, "")
    if _JAVA_TMPDIR not in options:
        settings[JAVA_OPTIONS] = f"{options} {shlex.quote(_JAVA_TMPDIR + local_dir)}".strip()


def running_session() -> SparkSession | None:
    """Return the existing session, whichever thread created it."""
    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return session if session is not None and session.sparkContext._jsc is not None else None


def _first_line(error: Exception) -> str:
    """Return the error message of the JVM or PySpark, without a stack."""
    thrown = getattr(error, "java_exception", None)
    text = str(error if thrown is None else thrown.getMessage()).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def socket_directory(session: SparkSession, work: Path) -> str | None:
    """Return the directory for Unix sockets between driver and slots; None: they have to use TCP."""
    is_near = is_on_one_machine(session) and len(str(work)) <= _LONGEST_SOCKET_DIRECTORY
    return str(work) if is_near else None


def _find_java() -> None:
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    raise UsageError(
        "Spark needs Java 17 or newer, and no java was found",
        hint="Install one (on Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
    )


def stop(session: SparkSession) -> None:
    """Stop a session. If its JVM is gone, because a signal reached the whole process group, it has already ended."""
    with contextlib.suppress(Py4JError, ConnectionError):
        session.stop()
