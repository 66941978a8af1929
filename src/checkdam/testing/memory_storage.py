"""Storage in a dict: as strict as the real thing, and as fast as a test wants."""

from checkdam.storage.memory_storage import MemoryStorage

__all__ = ["MemoryStorage"]
