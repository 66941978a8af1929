"""Declarations of endpoints, from which routes, request checks and the OpenAPI document are built.

    def routes(jobs: Jobs) -> list[Endpoint]:
        return [Endpoint("GET", "/jobs/{jobid}/state", partial(_states, jobs), "The job's states", response=States)]

A handler takes a `ApiCall`, runs in its own thread and returns an object to encode as JSON, or a Starlette Response.
It may raise RestError or any CheckdamError; any other exception becomes a 500 in Flink's form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams

from checkdam.server.app.http_errors import RestError

_MAX_INTEGER = 2**63 - 1
HexId = Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$", max_length=32)]
Natural = Annotated[int, Meta(ge=0, le=_MAX_INTEGER)]
Positive = Annotated[int, Meta(ge=1, le=_MAX_INTEGER)]
Name = Annotated[str, Meta(min_length=1)]

PATH_TYPES: Mapping[str, Any] = {
    "jobid": HexId,
    "vertexid": HexId,
    "triggerid": HexId,
    "subtaskindex": Natural,
    "attempt": Natural,
    "checkpointid": Natural,
}
"""The types of path parameters that are not plain text. Handlers see ids in lower case."""


class Nothing(msgspec.Struct, frozen=True):
    """An empty body, the JSON object {}."""


@dataclass(frozen=True)
class Query:
    """One query parameter. A list is given comma-separated; `choices` are compared case-insensitively."""

    name: str
    type: Any = str  # a msgspec type that can be parsed from text
    description: str = ""
    default: Any = None
    is_list: bool = False
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class ApiCall:
    """One validated request: path parameters unquoted, query parameters parsed, the body in its declared type."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]  # holds every declared parameter, with its default if it was not given
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)  # looked up case-insensitively

    @property
    def job_id(self) -> str:
        return str(self.path["jobid"])


Handler = Callable[[ApiCall], Any]


@dataclass(frozen=True)
class Endpoint:
    """One method on one path. `{name}` matches one segment, a final `{name:path}` matches the rest of the path."""

    method: str
    path: str  # without /v1; both forms are served
    handler: Handler
    summary: str
    response: Any = None  # the msgspec type of the JSON; None: not described (a page, an image)
    body: Any = None  # the type that the request's JSON is decoded to; None: the body is not read
    query: tuple[Query, ...] = ()
    status: int = 200
    errors: tuple[int, ...] = ()  # status codes; the document adds 400 (bad path or query) where it can occur
    tag: str = "jobs"
    media_type: str = "application/json"
    writes: bool | None = None  # whether it changes anything; None: decided by the method
    body_name: str | None = None  # Flink's class name, for the error about a malformed body; None: the type's own name
    is_documented: bool = True  # whether it appears in openapi.json
    is_awaited: bool = False  # the handler is a coroutine function: it runs on the event loop and must not block

    @property
    def is_write(self) -> bool:
        return self.method != "GET" if self.writes is None else self.writes

    def read(self, path: Mapping[str, str], query: QueryParams, body: bytes, headers: Mapping[str, str]) -> ApiCall:
        """Parse the request as the endpoint declares it. Raise RestError 400, in Flink's words, if it does not fit."""
        return ApiCall(
            {name: _path_value(name, unquote(text)) for name, text in path.items()},
            {each.name: _query_value(each, query.getlist(each.name)) for each in self.query},
            self._decoded(body) if self.body is not None else None,
            headers,
        )

    def _decoded(self, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body.strip() or b"{}", type=self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            name = self.body_name or getattr(self.body, "__name__", "RequestBody")
            raise RestError(400, f"Request did not match expected format {name}. {error}") from error


class Reads:
    """Declares GET endpoints below one path whose handlers take `known` as their first argument."""

    def __init__(self, known: Any, below: str, tag: str = "jobs") -> None:
        self._known = known
        self._below = below
        self._tag = tag

    def __call__(
        self, path: str, handler: Callable[[Any, ApiCall], Any], summary: str, response: Any, *query: Query
    ) -> Endpoint:
        return Endpoint(
            "GET",
            self._below + path,
            partial(handler, self._known),
            summary,
            response=response,
            query=query,
            errors=(404,) if "{" in self._below + path else (),
            tag=self._tag,
        )


def bad_parameters(problem: str) -> RestError:
    return RestError(400, f"Bad request, could not parse parameters: {problem}")


def _path_value(name: str, text: str) -> Any:
    kind = PATH_TYPES.get(name, Name)
    try:
        value = msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        value = None
    if value is None or "\x00" in text or "�" in text:  # never part of a name: bytes that are not UTF-8, or NUL
        raise bad_parameters(f'Cannot resolve path parameter ({name}) from value "{text}".')
    return text.lower() if kind is HexId else value


def _query_value(parameter: Query, given: list[str]) -> Any:
    if not given:
        if parameter.required:
            raise bad_parameters(f"Missing mandatory query parameter ({parameter.name}).")
        return parameter.default
    if parameter.is_list:
        parts = [part.strip() for text in given for part in text.split(",")]
        return [_scalar(parameter, part) for part in parts if part]
    if len(given) > 1:
        raise bad_parameters(f"Query parameter ({parameter.name}) is given {len(given)} times.")
    return _scalar(parameter, given[0])


def _scalar(parameter: Query, text: str) -> Any:
    try:
        if parameter.choices:
            return next(choice for choice in parameter.choices if choice.lower() == text.lower())
        return msgspec.convert(text, parameter.type, strict=False)
    except (msgspec.ValidationError, StopIteration):
        raise bad_parameters(f'Cannot resolve query parameter ({parameter.name}) from value "{text}".') from None
