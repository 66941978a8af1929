"""Where clients of REST may have savepoints written: the rule for `target-directory`.

A relative directory is one below the configured savepoint directory, and cannot lead out of it. Elsewhere a client may
write only where `state.savepoints.allowed-dirs` says. While that is unset, a server without a token, which only users
of this machine can reach, takes any absolute place, as Flink does.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from checkdam.config import SAVEPOINT_ALLOWED_DIRS, SAVEPOINT_DIR
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.http_errors import RestError
from checkdam.storage.filesystem import below

_SPECIAL = frozenset("%?#\\")  # would change the meaning of the URI that they are appended to


@dataclass(frozen=True)
class SavepointPlaces:
    """The places of one job.

    `directory` is the configured one, `allowed` are others that the configuration allows; `anywhere`: any absolute one.
    """

    directory: str | None
    allowed: Sequence[str] = ()
    anywhere: bool = False

    def resolve(self, given: str) -> str:
        """Return the directory that a client means.

        Raises:
            RestError: 400 if it is no place, 403 if savepoints may not be written there.
        """
        try:
            return self._resolved(given)
        except ValueError as error:  # a null character, or half of a surrogate pair
            raise RestError(400, f"{given!r} is not a directory.") from error

    def _resolved(self, given: str) -> str:
        relative = _relative_path(given)
        if relative is not None:
            return self._below_directory(given, relative)
        if not self.anywhere and not any(_contains(place, given) for place in self._places()):
            raise self._refused(given)
        return given

    def _below_directory(self, given: str, relative: str) -> str:
        if self.directory is None:
            raise RestError(
                400,
                f'The directory "{given}" is relative, and {SAVEPOINT_DIR.key} is not set, to which it would belong. '
                "Give an absolute one.",
            )
        base = _local_path(self.directory)
        if base is not None:
            target = os.path.normpath(os.path.join(base, relative))
        elif _SPECIAL.isdisjoint(relative):
            path = posixpath.normpath(relative)
            target = self.directory if path == "." else below(self.directory, path)
        else:
            raise self._refused(given)
        if not any(_contains(place, target) for place in self._places()):
            raise self._refused(given)
        return target

    def _places(self) -> Sequence[str]:
        return [*([self.directory] if self.directory is not None else []), *self.allowed]

    def _refused(self, given: str) -> RestError:
        known = ", ".join(f'"{without_credentials(place)}"' for place in self._places()) or "none"
        return RestError(
            403,
            f'Savepoints may not be written to "{without_credentials(given)}". The allowed places, from '
            f"{SAVEPOINT_DIR.key} and {SAVEPOINT_ALLOWED_DIRS.key}, are: {known}, and the directories below.",
        )


def _relative_path(place: str) -> str | None:
    """Return the path if it is a relative one; None for an absolute path or a URI."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif "://" in place:
        return None
    else:
        path = os.path.expanduser(place)
    return None if os.path.isabs(path) else path


def _local_path(place: str) -> str | None:
    """Return the path of a local place as storage opens it; None for a URI of another storage."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return os.path.abspath(os.path.expanduser(unquote(parts.path)))
    return None if "://" in place else os.path.abspath(os.path.expanduser(place))


def _contains(place: str, target: str) -> bool:
    """Return whether the target is the place or below it, wherever symbolic links lead."""
    outer, inner = _local_path(place), _local_path(target)
    if outer is not None and inner is not None:
        return _is_below(os.path.realpath(inner), os.path.realpath(outer))
    if outer is not None or inner is not None:
        return False
    of, at = urlsplit(place), urlsplit(target)
    return (
        _store(of) == _store(at) and not _has_dots(unquote(at.path)) and _is_below(unquote(at.path), unquote(of.path))
    )


def _store(uri: SplitResult) -> tuple[str, str, str, str]:
    """Return what makes a URI one of a certain storage: its query may name another endpoint."""
    return uri.scheme, uri.netloc, uri.query, uri.fragment


def _has_dots(path: str) -> bool:
    """Return whether a path has segments that another storage may resolve in its own way."""
    return any(segment in (".", "..") for segment in path.replace("\\", "/").split("/"))


def _is_below(inner: str, outer: str) -> bool:
    return inner.rstrip("/") == outer.rstrip("/") or inner.startswith(outer.rstrip("/") + "/")
