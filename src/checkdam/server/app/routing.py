"""Finds the endpoint of a request. A literal segment goes before a parameter, wherever its endpoint was declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from checkdam.server.app.endpoint import Endpoint

_VERSION = "v1"


@dataclass
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    endpoint: Endpoint | None = None
    takes_rest: Endpoint | None = None


class Router:
    """Every endpoint under its path, with and without the version before it."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints: tuple[Endpoint, ...] = tuple(endpoints)
        self._roots: dict[str, _Node] = {}
        for endpoint in self.endpoints:
            self._add(endpoint)

    def find(self, method: str, raw_path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint and its path parameters, unquoted; HEAD finds what GET would, unless that changes something."""
        segments = raw_path.strip("/").split("/") if raw_path.strip("/") else []
        if segments and segments[0] == _VERSION:
            segments = segments[1:]
        root = self._roots.get("GET" if method == "HEAD" else method)
        found = _find(root, segments, []) if root is not None else None
        if found is None or (method == "HEAD" and found[0].is_write):
            return None
        endpoint, values = found
        return endpoint, dict(zip(endpoint.parameters, (unquote(value) for value in values), strict=True))

    def _add(self, endpoint: Endpoint) -> None:
        node = self._roots.setdefault(endpoint.method, _Node())
        for segment in endpoint.segments:
            if segment.endswith(":path}"):
                node.takes_rest = endpoint
                return
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        if node.endpoint is not None:
            raise ValueError(f"two endpoints for {endpoint.method} {endpoint.path}")
        node.endpoint = endpoint


def _find(node: _Node, segments: Sequence[str], taken: list[str]) -> tuple[Endpoint, list[str]] | None:
    if not segments and node.endpoint is not None:
        return node.endpoint, taken
    if segments:
        literal = node.literals.get(unquote(segments[0]))
        found = _find(literal, segments[1:], taken) if literal is not None else None
        if found is None and node.parameter is not None and segments[0]:
            found = _find(node.parameter, segments[1:], [*taken, segments[0]])
        if found is not None:
            return found
    if node.takes_rest is not None:
        return node.takes_rest, [*taken, "/".join(segments)]
    return None
