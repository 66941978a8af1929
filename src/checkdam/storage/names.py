"""Names read from files that somebody else may have written: which of them may become paths.

A snapshot names files, and so does a committable of a sink. Before such a name is joined to a directory, it must be
plain: then the result lies below that directory, whatever the file says.
"""

from __future__ import annotations


def is_plain_name(name: str) -> bool:
    """Whether this is the name of one file: not empty, no separator, not "." or "..", valid on every file system."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def is_plain_path(path: str) -> bool:
    """Whether this is one plain name, or several with "/" between them."""
    return all(map(is_plain_name, path.split("/")))


def checked_path(path: str) -> str:
    """The path as it is used in a storage, "" for its root. Raises ValueError for one that is not below that root."""
    below = path.rstrip("/")
    if path and not is_plain_path(below):
        raise ValueError(f"{path!r} is not a path below the root of its storage")
    return below
