"""Runs one side and writes its measurements."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.sides import (
    async_calls,
    bounded,
    flink,
    jobs,
    kinds,
    latency,
    page,
    queries,
    savepoints,
    sliding_windows,
    spark,
    spark_windows,
    state,
    values,
    windows,
)

SIDES: dict[str, Callable[..., Any]] = {
    "async_calls": async_calls.run,
    "checkdam": jobs.run,
    "flink_java": flink.java_count,
    "kinds": kinds.run,
    "latency": latency.run,
    "larger_than_memory": bounded.larger_than_memory,
    "limit": spark.limit,
    "pyflink_count": flink.pyflink_count,
    "pyflink_tumbling": flink.pyflink_tumbling,
    "sql_count": spark.sql_count,
    "transform_with_state": spark.transform_with_state,
    "write_state": state.write,
    "queried": queries.run,
    "restore_state": state.restore,
    "memory_of_dict": state.memory_of_dict,
    "memory_of_store": state.memory_of_store,
    "serializers": values.run,
    "sliding_windows": sliding_windows.run,
    "spark_sessions": spark_windows.sessions,
    "spark_tumbling": spark_windows.tumbling,
    "windows": windows.run,
    "web_page": page.interactive,
    "take_savepoint": savepoints.taken,
    "restore_savepoint": savepoints.restored,
    "read_savepoint": savepoints.read,
}


def main() -> None:
    name, arguments, result = sys.argv[1:]
    measured = SIDES[name](**json.loads(arguments))
    Path(result).write_text(json.dumps(measured))


if __name__ == "__main__":
    main()
