"""Masks secrets: values of settings whose keys sound secret, and credentials inside addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from checkdam.clock import milliseconds_in

MASKED: Final = "******"
_SECRET_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "access-key",
    "access.key",
    "accesskey",
    "account.key",
    "private-key",
    "private.key",
    "fixed.token",
    "azure.sas",
    "auth",
    "service-key",
    "jaas.config",
    "http-headers",
    "credential",
)
# Both parts are masked: the user name is half of the credentials. A name alone stays: abfs:// has its container there.
_IN_AUTHORITY = re.compile(r"(?<=://)[^/?#\s:@\"']*:[^/?#\s\"']*@")
_IN_QUERY = re.compile(
    r"(?i)([?&;][\w.-]*(?:secret|passw|token|credential|signature|access.?key|account.?key|\bsig)[\w.-]*=)[^&;\s\"']+"
)


def masked(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings as text, with stars for values whose key sounds secret, and for credentials in addresses."""
    return {
        key: MASKED if is_secret(key) else without_credentials(_text(value))
        for key, value in sorted(configuration.items())
    }


def is_secret(key: str) -> bool:
    lowered = key.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def without_credentials(text: str) -> str:
    """Replace credentials in addresses within any text by stars (s3://key:secret@bucket)."""
    if "://" not in text:
        return text
    return _IN_QUERY.sub(rf"\g<1>{MASKED}", _IN_AUTHORITY.sub(f"{MASKED}@", text))


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{milliseconds_in(value)} ms"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
