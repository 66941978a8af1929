"""Serves checkpoints in the driver's memory to slots that Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from checkdam.runtime.driver_memory import DriverMemoryServer
from checkdam.runtime.job import Job
from checkdam.runtime.spark.session import socket_directory
from checkdam.storage.memory_storage import is_in_memory


@contextmanager
def memory_served(job: Job, session: SparkSession, work: Path) -> Iterator[Job]:
    """Yield the job with access to its checkpoints in memory; slots can reach them until the block ends."""
    if job.storage is None or not is_in_memory(job.storage):
        yield job
        return
    sockets = socket_directory(session, work)
    driver = session.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1"
    location = f"grpc+unix://{sockets}/memory.sock" if sockets is not None else f"grpc+tcp://{driver}:0"
    server = DriverMemoryServer(location, job.storage)
    try:
        yield replace(job, driver_memory=server.access)
    finally:
        server.close()
