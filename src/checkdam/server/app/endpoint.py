"""How a module of this room declares what it serves: the router, the checks and the OpenAPI document come from this.

    def routes(jobs: Jobs) -> list[Endpoint]:
        return [Endpoint("GET", "/jobs/{jobid}/state", partial(_states, jobs), "The job's states", response=States)]

A handler takes a `Call`, runs in a thread of its own, and returns what its JSON is made of. It raises RestError, or
lets a CheckdamError through; anything else is a 500 in Flink's form and harms nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

HEX_ID = re.compile(r"[0-9a-fA-F]{32}")
HEX_PARAMETERS = frozenset({"jobid", "vertexid", "triggerid"})
"""Path parameters that are 32 hex digits; handlers see them in lower case."""

INTEGER_PARAMETERS = frozenset({"subtaskindex", "attempt", "checkpointid"})
"""Path parameters that are whole numbers of 64 bits, not negative."""

MAX_INTEGER = 2**63 - 1


class Nothing(msgspec.Struct, frozen=True):
    """No content, which is the JSON object {}."""


@dataclass(frozen=True)
class Query:
    """One query parameter. A list is comma-separated in one parameter; `choices` are compared without case."""

    name: str
    type: type = str  # str, int, bool
    description: str = ""
    default: Any = None
    is_list: bool = False
    choices: tuple[str, ...] = ()
    minimum: int | None = None  # of a number; a smaller one is a 400
    required: bool = False


@dataclass(frozen=True)
class Raw:
    """An answer that is not JSON."""

    content: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Answer:
    """JSON with a status or headers other than the endpoint's own."""

    body: Any
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request, checked: path parameters unquoted, query parameters parsed, the body in its declared type."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]  # every declared parameter is there, with its default if it was not given
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case

    @property
    def job_id(self) -> str:
        return str(self.path["jobid"])


Handler = Callable[[Call], Any]


@dataclass(frozen=True)
class Endpoint:
    """One method on one path. `{name}` stands for a segment, `{name:path}` at the end for all that is left."""

    method: str
    path: str  # without /v1; both are served
    handler: Handler
    summary: str
    response: Any = None  # the JSON's type, a msgspec type; None: not described (a page, a picture)
    body: Any = None  # what a request's JSON is decoded to; None: a body is not read
    query: tuple[Query, ...] = ()
    status: int = 200
    errors: tuple[int, ...] = ()  # beside 400 (path or query), which the document adds where it can happen
    tag: str = "jobs"
    media_type: str = "application/json"
    writes: bool | None = None  # whether it changes anything; None: by its method
    body_name: str | None = None  # Flink's class, named when a body does not fit; None: the type's own name
    is_documented: bool = True  # in openapi.json
    is_awaited: bool = False  # the handler is a coroutine function: it runs on the event loop, and must not block it
    is_open: bool = False  # needs no token: the page's own files, which tell nothing of a job

    @property
    def is_write(self) -> bool:
        return self.method != "GET" if self.writes is None else self.writes

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/")) if self.path != "/" else ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(s[1:-1].removesuffix(":path") for s in self.segments if s.startswith("{"))
