"""URIs of checkpoints and savepoints: from a directory to what lies in it, and back."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def below(uri: str, path: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def parent(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0]))


def last_name(uri: str) -> str:
    return urlsplit(uri).path.rstrip("/").rpartition("/")[2]
