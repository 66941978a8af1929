"""Places for savepoints in memory."""

from __future__ import annotations

from checkdam.storage.contract import Storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.mounts import mount


class SavepointPlace:
    """A directory of savepoints, over any storage; holds on to it for as long as the test does."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.uri = mount(self.storage)

    def files(self) -> list[str]:
        return sorted(each.path for each in self.storage.list(""))

    def complete(self) -> list[str]:
        """The URIs of the savepoints that have their `_metadata`."""
        return [f"{self.uri}/{path.removesuffix('/_metadata')}" for path in self.files() if path.endswith("/_metadata")]
