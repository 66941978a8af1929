"""Exclusive creation of objects on S3, which pyarrow.fs lacks and obstore has. Needs the extra `checkdam[s3]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from checkdam.errors import StorageError, StorageUncertainError

if TYPE_CHECKING:
    from obstore.store import S3Store

Create = Callable[[str, bytes], None]


def exclusive_create(uri: str, region: str | None, *, max_retries: int = 10) -> Create | None:
    """Return a function that creates an object by its key; None if `uri` is not on S3, or obstore is missing.

    Credentials are those in the URI, else those that obstore finds in the environment or on the machine.
    """
    if urlsplit(uri).scheme != "s3":
        return None
    try:
        import obstore
        from obstore import exceptions
    except ImportError:
        return None
    store = _store(uri, region, max_retries)

    def create(key: str, data: bytes) -> None:
        try:
            obstore.put(store, key, data, mode="create")
        except exceptions.AlreadyExistsError as error:
            raise FileExistsError(key) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StorageError(
                f'cannot write "{key}": {_first_line(error)}', hint="Give this user the right to write there."
            ) from error
        except exceptions.BaseError as error:
            raise StorageUncertainError(f'cannot write "{key}": {_first_line(error)}') from error

    return create


def _store(uri: str, region: str | None, max_retries: int) -> S3Store:
    """Return the bucket as pyarrow's URI describes it."""
    from obstore.store import S3Store

    parts = urlsplit(uri)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    config: dict[str, Any] = {"retry_config": {"max_retries": max_retries}}
    if region:
        config["region"] = region
    if parts.username is not None:
        config["access_key_id"] = unquote(parts.username)
        config["secret_access_key"] = unquote(parts.password or "")
    if "endpoint_override" in options:
        scheme = options.get("scheme", "https")
        config["endpoint"] = f"{scheme}://{options['endpoint_override']}"
        config["client_options"] = {"allow_http": scheme == "http"}
    return S3Store(parts.hostname or "", **config)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
