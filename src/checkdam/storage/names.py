"""Names of files: which of those that somebody else may have written may become paths, and which mark half a file.

A snapshot names files, and so does a committable of a sink. Before such a name is joined to a directory, it must be
plain: then the result lies below that directory, whatever the file says.
"""

from __future__ import annotations

TEMPORARY_PREFIX = ".tmp-"
"""Files whose name begins so are half-written; whoever finds one that no living writer owns may remove it."""

_LONGEST = 255  # bytes, on every common file system


def is_plain_name(name: str) -> bool:
    """Whether this can be the name of one file in a directory, and leads nowhere else."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= _LONGEST
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def is_plain_path(path: str) -> bool:
    """Whether this is one plain name, or several with "/" between them."""
    return all(map(is_plain_name, path.split("/")))


def checked_path(path: str) -> str:
    """The path as it is used in a storage, "" for its root. Raises ValueError for one that is not below that root."""
    below = path.rstrip("/")
    if path and not is_plain_path(below):
        raise ValueError(f"{path!r} is not a path below the root of its storage")
    return below
