"""Durable bytes: atomic writes, reads, listings and deletions on any file system."""

from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import TEMPORARY_PREFIX, open_storage
from checkdam.storage.memory_storage import MemoryStorage

__all__ = ["TEMPORARY_PREFIX", "FileStatus", "MemoryStorage", "Storage", "open_storage"]
