"""Durable bytes: atomic writes, reads, listings and deletions on any file system."""

from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import open_storage
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.storage.names import TEMPORARY_PREFIX

__all__ = ["TEMPORARY_PREFIX", "FileStatus", "MemoryStorage", "Storage", "open_storage"]
