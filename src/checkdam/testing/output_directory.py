"""A directory for the files of a sink; a test reads from it what any reader would see."""

from __future__ import annotations

import json
from typing import Any

from checkdam.connectors.file_sink import STAGING, WITHDRAWN
from checkdam.storage.contract import Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.mounts import mount


class OutputDirectory:
    """A directory in memory for `sink_to_files(output.uri)`; or over another storage, such as a FaultyStorage."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.uri = mount(self.storage)

    def rows(self) -> list[Any]:
        """Return the lines of all published files, in no particular order.

        A line is a dict by column, as JSON gives it; for records that are plain values, the value.
        """
        found = [each.path for each in self.storage.list("") if not each.path.startswith((STAGING, WITHDRAWN))]
        rows = [json.loads(line) for path in found for line in self.storage.read(path).splitlines()]
        return [row["value"] if list(row) == ["value"] else row for row in rows]
