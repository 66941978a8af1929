"""The JVM beside the driver, and what of its output a user gets to see."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_QUIET = Path(__file__).with_name("quiet-log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NOISE = re.compile(
    r"^(WARNING: Using incubator modules"
    r"|WARNING: .*(sun\.misc\.Unsafe|restricted method|native.access|deprecated|will be removed|will be blocked)"
    r"|WARNING: Please consider reporting"
    r"|Using Spark's default log4j profile|Setting default log level|To adjust logging level"
    r"|.*/pyspark/.*Warning: )"
)


def start_quietly(conf: SparkConf) -> None:
    """Start the JVM with its log off. What else it, its workers or slots say goes to standard error.

    Nothing of theirs reaches standard output, which belongs to the job.
    """
    if SparkContext._gateway is not None:
        return  # a JVM outlives its sessions; it keeps the output it was started with
    conf.set(_JAVA_OPTIONS, f"{conf.get(_JAVA_OPTIONS, '') or ''} -Dlog4j2.configurationFile={_QUIET.as_uri()}".strip())
    output, jvm_end = os.pipe()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": jvm_end, "stderr": jvm_end})
    finally:
        os.close(jvm_end)
        threading.Thread(target=_pass_on, args=(output,), daemon=True, name="jvm-output").start()
    _adopt(gateway)


def _adopt(gateway: Any) -> None:
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(output: int) -> None:
    with os.fdopen(output, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not _NOISE.match(line):
                sys.stderr.write(line)
                sys.stderr.flush()
