"""The JVM of the driver, and the part of its output that users see."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from checkdam.runtime.logs.line_stream import beneath

_QUIET = Path(__file__).with_name("quiet-log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
MARKER = "\x1e"
"""The first character of a line that has been written to a log file already."""

_UNCAUGHT = 'Exception in thread "main" '
_REASON_SECONDS = 5.0
_NOISE = re.compile(
    r"^(WARNING: Using incubator modules"
    r"|WARNING: .*(sun\.misc\.Unsafe|restricted method|native.access|deprecated|will be removed|will be blocked)"
    r"|WARNING: Please consider reporting"
    r"|Using Spark's default log4j profile|Setting default log level|To adjust logging level"
    r"|.*/pyspark/.*Warning: )"
)


_is_output_read = False  # whether this process reads the output of its JVM


def start_quietly(conf: SparkConf) -> None:
    """Start the JVM with its log off. Other output of the JVM, its workers and slots goes to standard error.

    None of it reaches standard output, which belongs to the job.

    Raises:
        JvmNotStartedError: no Java that works, or a setting that Spark refuses.
    """
    if SparkContext._gateway is not None:
        return  # a JVM outlives its sessions and keeps its first output
    conf.set(JAVA_OPTIONS, f"{conf.get(JAVA_OPTIONS, '') or ''} -Dlog4j2.configurationFile={_QUIET.as_uri()}".strip())
    read_end, jvm_end = os.pipe()
    output = _JvmOutput(read_end)
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": jvm_end, "stderr": jvm_end})
    except PySparkException as error:
        os.close(jvm_end)
        raise JvmNotStartedError(output.reason() or str(error)) from error
    os.close(jvm_end)
    output.pass_on()
    global _is_output_read
    _is_output_read = True
    SparkContext._ensure_initialized(gateway=gateway)


def marker_for(session: SparkSession) -> str:
    """Return the marker for lines that slots and workers have written to log files; "" if no reader would remove it."""
    return MARKER if _is_output_read and is_on_one_machine(session) else ""


def is_on_one_machine(session: SparkSession) -> bool:
    """Return whether slots and tasks share the driver's file system and can use Unix sockets."""
    master = str(session.sparkContext.master)
    return master.startswith("local[") or master == "local"


def leave_sigterm_to_driver(session: SparkSession) -> None:
    """Let the driver's JVM ignore SIGTERM, which a supervisor sends to every process of a job at once.

    The driver then takes a last checkpoint, and needs its JVM until that is complete. The JVM ends with its driver. A
    JVM that has started this process (spark-submit) is not changed: the signal is meant for it.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    java = session.sparkContext._jvm.sun.misc
    with suppress(Py4JJavaError):  # a JVM with -Xrs refuses: its owner wants default signal handling
        java.Signal.handle(java.Signal("TERM"), java.SignalHandler.SIG_IGN)


class JvmNotStartedError(Exception):
    """The JVM ended before it could be used; the text is its error output."""


class _JvmOutput:
    """The JVM's output, held back until it has started: before that, it can only explain a failed start."""

    def __init__(self, read_end: int) -> None:
        self._held: list[str] = []
        self._is_held = True
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, args=(read_end,), daemon=True, name="jvm-output")
        self._reader.start()

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if _NOISE.match(line):
                    continue
                with self._lock:
                    if self._is_held:
                        self._held.append(line)
                    else:
                        _to_stderr(line)

    def pass_on(self) -> None:
        """Show the output held back, and from now on pass everything on."""
        with self._lock:
            self._is_held = False
            for line in self._held:
                _to_stderr(line)
            self._held.clear()

    def reason(self) -> str:
        """Return why a JVM has ended, in its own words; empty if it printed nothing."""
        self._reader.join(timeout=_REASON_SECONDS)
        with self._lock:
            for line in self._held:
                if line.startswith(_UNCAUGHT):
                    return line.removeprefix(_UNCAUGHT).partition(": ")[2].strip()
            return self._held[-1].strip() if self._held else ""


def _to_stderr(line: str) -> None:
    """Show a line; one that a slot has written to a log file goes past the driver's own log file."""
    stream = beneath(sys.stderr) if line.startswith(MARKER) else sys.stderr
    stream.write(line.removeprefix(MARKER))
    stream.flush()
