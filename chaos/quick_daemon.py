"""PySpark's daemon for workers that start quickly: it loads their modules before it forks them.

It does not use Spark's zip files of PySpark, which is installed: reading them costs each worker half a second.
"""

from __future__ import annotations

import importlib
import sys

_MODULES = (
    "pandas",
    "pyarrow.flight",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "checkdam.runtime.slot.slot_client",
    "checkdam.runtime.slot.source_level",
    "checkdam.runtime.spark.slot_launcher",
    "checkdam.runtime.spark.plan",
)


def main() -> None:
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for path in [path for path in sys.path_importer_cache if ".zip" in path]:
        del sys.path_importer_cache[path]
    for module in _MODULES:
        importlib.import_module(module)
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
