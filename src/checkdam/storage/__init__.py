"""Durable bytes: atomic writes, reads, listings and deletions on any file system."""

from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import TEMPORARY_PREFIX, open_storage

__all__ = ["TEMPORARY_PREFIX", "FileStatus", "Storage", "open_storage"]
