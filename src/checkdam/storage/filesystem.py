"""Storages by URI: a local directory, a file system of pyarrow.fs, or a registered scheme."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit, urlunsplit

from checkdam.errors import ConfigError
from checkdam.storage.contract import Storage
from checkdam.storage.local_storage import LocalStorage

_registered: dict[str, Callable[[str], Storage]] = {}


def register_scheme(scheme: str, opener: Callable[[str], Storage]) -> None:
    """Make `open_storage` pass URIs of this scheme to `opener`; tests use this to put their own storage anywhere."""
    _registered[scheme] = opener


def open_storage(uri: str) -> Storage:
    """Open the tree of files below `uri`: a plain path, file://, or any URI of pyarrow.fs (s3://, hdfs://, gs://).

    Does not access the storage yet; `check_writable` checks whether it can be used.

    Raises:
        ConfigError: it is no path, the scheme is unknown, or its client is not installed.
    """
    if "\0" in uri:
        raise ConfigError(f"{uri!r} is not a path", hint="A path has no null characters.")
    parts = urlsplit(uri)
    if parts.scheme in _registered:
        return _registered[parts.scheme](uri)
    if parts.scheme == "file":
        return LocalStorage(unquote(parts.path))
    if not parts.scheme or "://" not in uri:
        return LocalStorage(uri)
    from checkdam.storage.arrow_storage import open_arrow_storage  # its clients are loaded only where they are used

    return open_arrow_storage(uri)


def below(uri: str, path: str) -> str:
    """Return the URI of a path below a directory."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def parent(uri: str) -> str:
    """Return the URI of the containing directory."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0]))


def last_name(uri: str) -> str:
    """Return the last part of a URI; "" for a root."""
    return urlsplit(uri).path.rstrip("/").rpartition("/")[2]
