"""Access control: loopback only unless there is a token, a valid Host, and no writes from other sites' pages.

A web page open in the user's browser can send requests to ports of this machine. It cannot read the responses unless a
header permits it, but a request that changes something takes effect all the same. So a write must not come from another
origin, and the Host must be a name of this server: a name that an attacker's DNS resolves to 127.0.0.1 is refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from checkdam.config import REST_AUTH_TOKEN, REST_AUTH_TOKEN_FILE, REST_BIND_ADDRESS, Configuration
from checkdam.errors import ConfigError
from checkdam.server.app.http_errors import RestError

GUARDED = "checkdam-guarded"
"""The header of a request that a server with a token forwards: its client may be on another machine."""

_LOG = logging.getLogger(__name__)
_LONGEST_TOKEN = 4096
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAME_SITE = ("same-origin", "none")  # none: typed by the user, not sent by a page


def rest_token(configuration: Configuration) -> str | None:
    """Return the token that requests must carry, taken from the configuration or from the configured file.

    Raises:
        ConfigError: the file cannot be read, or holds no token.
    """
    token, file = configuration.get(REST_AUTH_TOKEN), configuration.get(REST_AUTH_TOKEN_FILE)
    if token is not None or file is None:
        return token
    path = Path(file).expanduser()
    which = f'setting "{REST_AUTH_TOKEN_FILE.key}" names "{file}", '
    try:
        with path.open(encoding="utf-8") as lines:
            mode = os.fstat(lines.fileno()).st_mode
            token = lines.readline(_LONGEST_TOKEN).strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{which}which cannot be read: {reason}", hint="Write the token into that file.") from error
    if not token:
        raise ConfigError(f"{which}whose first line is empty", hint="Write the token into that line.")
    if mode & 0o077:
        _LOG.warning("rest: other users can read the token in %s; chmod 600 makes it private", path)
    return token


def check_binding(address: str, token: str | None) -> None:
    """Raise ConfigError if other machines could connect without a token, or if the token cannot be sent in a header."""
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f'setting "{REST_AUTH_TOKEN.key}" has characters that an HTTP header cannot contain',
            hint="Use ASCII letters and digits.",
        )
    if token is None and not is_loopback(address):
        raise ConfigError(
            f'setting "{REST_BIND_ADDRESS.key}" is "{address}", where other machines can reach the server, '
            f'and "{REST_AUTH_TOKEN.key}" is not set',
            hint=f"Set {REST_AUTH_TOKEN_FILE.key} to a file with a secret that clients send, or listen on localhost.",
        )


def is_loopback(address: str) -> bool:
    """Return whether the name resolves to loopback addresses only. Raise ConfigError if it does not resolve."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f'setting "{REST_BIND_ADDRESS.key}" is "{address}", which cannot be resolved',
            hint="Write localhost, or an address of this machine.",
        ) from error
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


@dataclass(frozen=True)
class Guard:
    """Decides by a request's headers alone whether to admit it."""

    token: str | None = None
    names: frozenset[str] = _OWN_NAMES  # allowed in a Host header
    is_any_address: bool = False  # listening on all addresses: any IP address is allowed in a Host header too
    cookie_name: str = "checkdam"
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))  # the cookie that replaces the token

    @classmethod
    def of(cls, bind_address: str, port: int, token: str | None, address: str | None = None) -> Guard:
        names = {*_OWN_NAMES, bind_address.lower(), *([address.lower()] if address else [])}
        is_any = bind_address in ("0.0.0.0", "::")
        if is_any:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        # Cookies are shared between ports: two servers on one machine must not overwrite each other's.
        return cls(token, frozenset(names), is_any, f"checkdam-{port}")

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise RestError unless the request's Host is a name of this server."""
        name = _host_name(headers.get("host", ""))
        if name is None:
            raise RestError(400, "Bad request, the Host header is missing or malformed.")
        if name not in self.names and not (self.is_any_address and _is_address(name)):
            raise RestError(403, f'Forbidden: "{name}" is not a name of this server. Set rest.address to allow it.')

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise RestError if a page of another origin sent a request that changes something."""
        site = headers.get("sec-fetch-site")
        source = headers.get("origin") or headers.get("referer")
        if (site is not None and site not in _SAME_SITE) or (
            source is not None and _authority(source) != headers.get("host", "").lower()
        ):
            raise RestError(403, "Forbidden: pages of other sites must not send requests that change something.")

    def check_token(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> None:
        """Raise RestError 401 unless the request carries the token, or the cookie issued for it."""
        if self.token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_known = scheme.lower() == "bearer" and _same(given.strip(), self.token)
        if not is_known and not _same(cookies.get(self.cookie_name, ""), self.session):
            raise _unauthorized('this server needs its token, sent as "Authorization: Bearer <token>".')

    def check_login(self, given: str) -> None:
        """Raise RestError 401 unless the token that a browser shows to get the cookie is right."""
        if self.token is None or not _same(given, self.token):
            raise _unauthorized("the token is wrong.")


def _unauthorized(reason: str) -> RestError:
    return RestError(401, f"Unauthorized: {reason}", {"WWW-Authenticate": "Bearer"})


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode("utf-8"))


def _host_name(host: str) -> str | None:
    if not host or any(sign in host for sign in "/@?#\\ "):
        return None
    try:
        return urlsplit("//" + host).hostname
    except ValueError:
        return None


def _authority(url: str) -> str | None:
    """Return what follows the scheme, keeping an explicit default port; None for "null"."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.netloc.lower() or None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
