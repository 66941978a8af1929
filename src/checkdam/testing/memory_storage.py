"""Storage in a dict: as strict as real storage, but fast."""

from checkdam.storage.memory_storage import MemoryStorage

__all__ = ["MemoryStorage"]
