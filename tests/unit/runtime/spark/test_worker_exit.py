"""PySpark's own daemon, with a worker that fails as one does whose connection is closed."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys

import pytest

DAEMON = """
import sys
from pyspark import daemon
from checkdam.runtime.spark.worker_exit import end_quietly_when_cancelled

sys.modules["__main__"] = daemon  # as under "python -m pyspark.daemon"

def worker(sock, authenticated):
    end_quietly_when_cancelled()
    end_quietly_when_cancelled()
    raise {failure}

daemon.worker = worker
daemon.manager()
"""


def _errors_of(failure: str) -> str:
    """What the daemon writes to standard error when a worker fails so."""
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON.format(failure=failure)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        while connection.recv(1024):  # the worker's process id, then its end
            pass
    _, errors = daemon.communicate(timeout=60)
    return errors.decode()


@pytest.mark.slow
def test_a_worker_whose_connection_spark_has_closed_ends_without_a_word() -> None:
    assert _errors_of("BrokenPipeError(32, 'Broken pipe')") == ""


@pytest.mark.slow
def test_any_other_failure_of_a_worker_is_printed() -> None:
    assert "ValueError: broken" in _errors_of("ValueError('broken')")
