"""Storages by their URIs: a local directory, a file system of pyarrow.fs, or one that was registered."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit, urlunsplit

from checkdam.errors import ConfigError
from checkdam.storage.contract import Storage
from checkdam.storage.local_storage import LocalStorage

_registered: dict[str, Callable[[str], Storage]] = {}


def register_scheme(scheme: str, opener: Callable[[str], Storage]) -> None:
    """Let `open_storage` hand URIs of this scheme to `opener`; so tests put a storage of their own in any place."""
    _registered[scheme] = opener


def open_storage(uri: str) -> Storage:
    """The tree of files below `uri`: a plain path, file://, or whatever pyarrow.fs opens (s3://, hdfs://, gs://).

    Nothing is touched yet; `check_writable` tells whether the place can be used.

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
    """The URI of what lies below a directory."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def parent(uri: str) -> str:
    """The URI of the directory that it lies in."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0]))


def last_name(uri: str) -> str:
    """Its own name in that directory; "" for a root."""
    return urlsplit(uri).path.rstrip("/").rpartition("/")[2]
