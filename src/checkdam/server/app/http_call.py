"""Turns the text of a request into a `Call`, or refuses it in Flink's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from checkdam.server.app.endpoint import HEX_ID, HEX_PARAMETERS, INTEGER_PARAMETERS, MAX_INTEGER, Call, Endpoint, Query
from checkdam.server.app.http_errors import RestError

MAX_INT = 2**31 - 1  # of a query parameter


def read_call(
    endpoint: Endpoint, path: Mapping[str, str], query_string: str, body: bytes, headers: Mapping[str, str]
) -> Call:
    """Raises RestError 400 for anything that does not fit what the endpoint declares."""
    return Call(
        {name: _path_value(name, value) for name, value in path.items()},
        _query_values(endpoint, query_string),
        _body(endpoint, body) if endpoint.body is not None else None,
        headers,
    )


def bad_parameters(problem: str) -> RestError:
    return RestError(400, f"Bad request, could not parse parameters: {problem}")


def _path_value(name: str, value: str) -> Any:
    if name in HEX_PARAMETERS:
        if HEX_ID.fullmatch(value) is None:
            raise bad_parameters(f'Cannot resolve path parameter ({name}) from value "{value}".')
        return value.lower()
    if name in INTEGER_PARAMETERS:
        number = _integer(value)
        if number is None or not 0 <= number <= MAX_INTEGER:
            raise bad_parameters(f'Cannot resolve path parameter ({name}) from value "{value}".')
        return number
    if "\x00" in value or "�" in value:  # no name holds these: bytes that are not UTF-8, or the end of a C string
        raise bad_parameters(f'Cannot resolve path parameter ({name}) from value "{value}".')
    return value


def _query_values(endpoint: Endpoint, query_string: str) -> dict[str, Any]:
    if not endpoint.query:
        return {}
    try:
        given = parse_qs(query_string, keep_blank_values=True, max_num_fields=1000)
    except ValueError as error:
        raise bad_parameters(str(error)) from error
    return {parameter.name: _query_value(parameter, given.get(parameter.name)) for parameter in endpoint.query}


def _query_value(parameter: Query, given: list[str] | None) -> Any:
    if given is None:
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
    problem = bad_parameters(f'Cannot resolve query parameter ({parameter.name}) from value "{text}".')
    if parameter.choices:
        chosen = next((choice for choice in parameter.choices if choice.lower() == text.lower()), None)
        if chosen is None:
            raise problem
        return chosen
    if parameter.type is int:
        number = _integer(text)
        if number is None or number > MAX_INTEGER or (parameter.minimum is not None and number < parameter.minimum):
            raise problem
        return number
    if parameter.type is bool:
        if text.lower() not in ("true", "false"):
            raise problem
        return text.lower() == "true"
    return text


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


def _body(endpoint: Endpoint, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=endpoint.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        name = endpoint.body_name or getattr(endpoint.body, "__name__", "RequestBody")
        raise RestError(400, f"Request did not match expected format {name}. {error}") from error
