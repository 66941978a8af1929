"""Serves the page's files from memory; only files present at startup are served."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

from checkdam.server.app.endpoint import ApiCall, Endpoint
from checkdam.server.app.http_errors import RestError

_TYPES = {  # fixed here because the machine's MIME table may lack or change some
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-cache",  # browsers cache it but revalidate each time, so an upgrade takes effect at once
}


@dataclass(frozen=True)
class StaticFile:
    content: bytes
    type: str
    etag: str


def static_files() -> dict[str, StaticFile]:
    """Return every file of the page by its path below `static`."""
    found: dict[str, StaticFile] = {}
    _collect(files("checkdam.server.page") / "static", "", found)
    return found


def _collect(directory: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
            continue
        content = entry.read_bytes()
        kind = _TYPES.get(entry.name.rpartition(".")[2], _TYPES["txt"])
        found[prefix + entry.name] = StaticFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def is_page(path: str) -> bool:
    """Return whether this is a path of the page's files, which contain no job data and so need no token."""
    return path == "/" or path.startswith("/ui/")


def routes() -> list[Endpoint]:
    """Serve the page at `/` and its files at `/ui/…`."""
    found = static_files()

    def page(call: ApiCall) -> Response:
        return _answer(call, found["index.html"])

    def file(call: ApiCall) -> Response:
        path = call.path["path"]
        if path not in found:
            raise RestError(404, f"Not found: /ui/{path}")
        return _answer(call, found[path])

    return [
        Endpoint("GET", "/", page, "The web page", is_documented=False),
        Endpoint("GET", "/ui/{path:path}", file, "A file of the web page", is_documented=False),
    ]


def _answer(call: ApiCall, known: StaticFile) -> Response:
    headers = {**_HEADERS, "ETag": known.etag}
    had = call.headers.get("if-none-match", "").split(",")
    if known.etag in (tag.strip().removeprefix("W/") for tag in had):
        return Response(b"", 304, headers, known.type)
    return Response(known.content, 200, headers, known.type)
