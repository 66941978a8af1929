"""The OpenAPI 3.1 document, generated from the endpoints the server serves."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

import checkdam
from checkdam.server.app.endpoint import PATH_TYPES, ApiCall, Endpoint, Name, Query
from checkdam.server.app.http_errors import ErrorBody

_REF = "#/components/schemas/{name}"
_JSON = "application/json"


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    shown = [endpoint for endpoint in endpoints if endpoint.is_documented]
    types = [kind for endpoint in shown for kind in (endpoint.response, endpoint.body) if kind is not None]
    schemas, components = msgspec.json.schema_components([ErrorBody, *types], ref_template=_REF)
    schema_of = {id(kind): schema for kind, schema in zip([ErrorBody, *types], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in shown:
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Checkdam",
            "version": str(checkdam.__version__),
            "description": "Flink's REST API (2.3) for jobs of Checkdam, and what Checkdam adds to it. "
            "Every path is served below /v1 too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schema_of: dict[int, Any]) -> dict[str, Any]:
    words = re.sub(r"[^A-Za-z0-9]+", "_", endpoint.path).strip("_") or "root"
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{words}",
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"{(\w+)", endpoint.path)),
            *(_query_parameter(query) for query in endpoint.query),
        ],
        "responses": _responses(endpoint, schema_of),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": False,
            "content": {_JSON: {"schema": schema_of[id(endpoint.body)]}},
        }
    return operation


def _responses(endpoint: Endpoint, schema_of: dict[int, Any]) -> dict[str, Any]:
    statuses = {400, 401, 403, 500, *endpoint.errors}
    if endpoint.body is not None:
        statuses |= {408, 413}
    error = {_JSON: {"schema": schema_of[id(ErrorBody)]}}
    responses = {str(each): {"description": HTTPStatus(each).phrase, "content": error} for each in sorted(statuses)}
    schema = {"type": "string"} if endpoint.response is None else schema_of[id(endpoint.response)]
    media_type = endpoint.media_type.partition(";")[0]
    responses[str(endpoint.status)] = {
        "description": HTTPStatus(endpoint.status).phrase,
        "content": {media_type: {"schema": schema}},
    }
    return responses


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(PATH_TYPES.get(name, Name))}


def _query_parameter(query: Query) -> dict[str, Any]:
    schema = {"type": "string", "enum": list(query.choices)} if query.choices else msgspec.json.schema(query.type)
    parameter: dict[str, Any] = {"name": query.name, "in": "query", "required": query.required}
    if query.description:
        parameter["description"] = query.description
    if query.is_list:
        return parameter | {"style": "form", "explode": False, "schema": {"type": "array", "items": schema}}
    if query.default is not None:
        schema["default"] = query.default
    return parameter | {"schema": schema}


def routes(others: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the endpoint that serves the description of these endpoints and of itself."""
    described = [*others]

    @functools.cache  # the endpoints of a server never change
    def described_once() -> dict[str, Any]:
        return document([*described, own])

    def serve(_: ApiCall) -> dict[str, Any]:
        return described_once()

    own = Endpoint("GET", "/openapi.json", serve, "This description", response=dict[str, Any], tag="cluster")
    return [own]
