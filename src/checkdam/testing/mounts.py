"""Storage objects under a URI, so that what is opened by path can be any double."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from checkdam.errors import ConfigError
from checkdam.storage.contract import FileStatus, Storage
from checkdam.storage.filesystem import register_scheme
from checkdam.storage.subtree import subtree

SCHEME = "mount"

View = Callable[[Storage], Storage]

_numbers = itertools.count()
_mounts: WeakValueDictionary[str, Any] = WeakValueDictionary()
_view: ContextVar[View | None] = ContextVar("checkdam_testing_view", default=None)


def mount(storage: Storage) -> str:
    """A URI by which `open_storage` finds this very object, for as long as somebody holds it."""
    name = str(next(_numbers))
    _mounts[name] = storage
    return f"{SCHEME}://{name}"


@contextmanager
def seen_as(view: View) -> Iterator[None]:
    """Whatever this thread opens meanwhile is opened through `view`."""
    token = _view.set(view)
    try:
        yield
    finally:
        _view.reset(token)


def _open(uri: str) -> Storage:
    parts = urlsplit(uri)
    found = _mounts.get(parts.netloc)
    if found is None:
        raise ConfigError(f'nothing is mounted at "{uri}"', hint="Mount a storage, and hold on to it.")
    view = _view.get()
    seen: Storage = Mounted(found if view is None else view(found), f"{SCHEME}://{parts.netloc}")
    return subtree(seen, parts.path.strip("/"))


@dataclass(frozen=True)
class Mounted:
    """A storage under the URI of its mount."""

    storage: Storage
    uri: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.storage, name)

    def list(self, directory: str) -> list[FileStatus]:
        return self.storage.list(directory)


register_scheme(SCHEME, _open)
