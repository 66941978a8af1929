"""File names: which untrusted names may become paths, and which mark incomplete files.

A snapshot names files, and so does a committable of a sink. Such a name must be plain before it is joined to a
directory: then the result lies below that directory, whatever the file says.
"""

from __future__ import annotations

TEMPORARY_PREFIX = ".tmp-"
"""The prefix of incomplete files; one without a living writer may be removed."""

LOGS = "_logs"
"""The directory of log files in a local storage. It is no part of the storage: each user's logs are theirs alone."""


def temporary_name(path: str) -> str:
    """Return the path under which a file is written before it gets its name."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}{TEMPORARY_PREFIX}{name}"


_LONGEST = 255  # bytes, on every common file system


def is_plain_name(name: str) -> bool:
    """Return whether this is a valid name of one file that cannot lead out of its directory."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= _LONGEST
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def is_plain_path(path: str) -> bool:
    """Return whether this is one plain name, or several separated by "/"."""
    return all(map(is_plain_name, path.split("/")))


def checked_path(path: str) -> str:
    """Return the path as used in a storage, "" for its root. Raises ValueError for one that is not below that root."""
    below = path.rstrip("/")
    if path and not is_plain_path(below):
        raise ValueError(f"{path!r} is not a path below the root of its storage")
    return below
