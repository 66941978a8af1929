"""The state of a running job as of whole epochs: its states, the value of a key, and the keys of a state.

A key query never occupies a thread: it goes to the slots' channels, and the answer wakes the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from checkdam.errors import CheckdamError, StateNotReadyError
from checkdam.runtime.job_control import QueryableState, QueryAnswer
from checkdam.runtime.live_state.queried_state import QueriedState
from checkdam.runtime.live_state.state_queries import LiveState, Question
from checkdam.runtime.monitor.job_records import OperatorRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Positive, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.types.json_values import key_from_json, key_from_text, to_json

_MOST_KEYS = 10_000
_MOST_LISTED = 1000
_PATIENCE_SECONDS = 30.0


class StateShape(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    name: str
    kind: str
    key_type: str
    type: str
    entries: int
    ttl: bool
    map_key_type: str | msgspec.UnsetType = msgspec.UNSET
    window_type: str | msgspec.UnsetType = msgspec.UNSET


class OperatorWithStates(msgspec.Struct, frozen=True, rename="kebab"):
    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[StateShape]


class States(msgspec.Struct, frozen=True):
    epoch: int
    operators: list[OperatorWithStates]


class KeyAnswer(msgspec.Struct, frozen=True, rename="kebab"):
    """The value of one key at the end of the epoch; null if it has none.

    The value of window state is an array of pairs of window and value, with `by-window`; or with `window` that of one.
    """

    epoch: int
    key: Any
    found: bool
    value: Any
    key_group: int
    subtask: int
    window: Any = msgspec.UNSET
    by_window: bool | msgspec.UnsetType = msgspec.UNSET


class KeyAnswers(msgspec.Struct, frozen=True):
    """One answer per key, in the order of the keys; `epoch` is the earliest of the answers'."""

    epoch: int
    answers: list[KeyAnswer]


class KeysRequest(msgspec.Struct, frozen=True, rename="kebab"):
    keys: list[Any]
    map_key: Any = None
    window: Any = None


class KeyEntry(msgspec.Struct, frozen=True, rename="kebab"):
    key: Any
    value: Any
    key_group: int
    window: Any = msgspec.UNSET


class Page(msgspec.Struct, frozen=True):
    epoch: int
    entries: list[KeyEntry]
    next: str | None


def routes(jobs: Jobs) -> list[Endpoint]:
    live = _Live(jobs)
    where = "/jobs/{jobid}/state/{uid}/{name}"
    read = partial(Endpoint, errors=(404, 409, 503), tag="state", writes=False)
    key = Query("key", str, "The key as JSON; a text key may be given without quotes", required=True)
    map_key = Query("map-key", str, "Only this entry of a map state")
    window = Query("window", str, "Only this window of window state, as JSON")
    cursor = Query("cursor", str, "`next` of the previous page; left out: the first page")
    limit = Query("limit", Positive, f"Most entries to return, up to {_MOST_LISTED}", default=50)
    one = "The value of a key, as of the last complete epoch"
    many = "The values of many keys; those of one slot as of the same epoch"
    listed = "The keys of a state with their values, page by page"
    return [
        read("GET", "/jobs/{jobid}/state", live.states, "The keyed states of a running job", response=States),
        read("GET", where, live.get, one, response=KeyAnswer, query=(key, map_key, window), is_awaited=True),
        read("POST", where, live.get_many, many, response=KeyAnswers, body=KeysRequest, is_awaited=True),
        read("GET", where + "/keys", live.keys, listed, response=Page, query=(cursor, limit)),
    ]


class _Live:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def states(self, call: ApiCall) -> States:
        epoch, found = self._state_of(call).overview()
        operators = {op.uid or f"operator-{op.id}": op for op in self._jobs.record(call.job_id).operators}
        by_uid: dict[str, list[StateShape]] = {}
        for each in found:
            by_uid.setdefault(each.uid, []).append(_shape(each))
        return States(epoch, [_operator(operators[uid], uid, states) for uid, states in by_uid.items()])

    async def get(self, call: ApiCall) -> KeyAnswer:
        text, map_text, window_text = call.query["key"], call.query["map-key"], call.query["window"]

        def question(state: QueriedState) -> tuple[list[Any], Any, Any]:
            key, window = key_from_text(text, state.key_type), _window(state, window_text, key_from_text)
            return [key], _map_key(state, map_text, key_from_text), window

        state, keys, window, [answer] = await self._ask(call, question)
        return _answer(state, keys[0], window, answer)

    async def get_many(self, call: ApiCall) -> KeyAnswers:
        request: KeysRequest = call.body
        if len(request.keys) > _MOST_KEYS:
            raise RestError(400, f"{len(request.keys)} keys in one request: at most {_MOST_KEYS} are allowed.")

        def question(state: QueriedState) -> tuple[list[Any], Any, Any]:
            keys, window = (
                [key_from_json(key, state.key_type) for key in request.keys],
                _window(state, request.window, key_from_json),
            )
            return keys, _map_key(state, request.map_key, key_from_json), window

        state, keys, window, answers = await self._ask(call, question)
        found = [_answer(state, key, window, answer) for key, answer in zip(keys, answers, strict=True)]
        return KeyAnswers(min((each.epoch for each in answers), default=-1), found)

    def keys(self, call: ApiCall) -> Page:
        live, uid, name = self._state_of(call), call.path["uid"], call.path["name"]
        page = live.page(uid, name, call.query["cursor"], min(call.query["limit"], _MOST_LISTED))
        state = live.state(uid, name)
        return Page(page.epoch, [_entry(state, *state.split(key), value) for key, value in page.entries], page.cursor)

    async def _ask(self, call: ApiCall, question: Question) -> tuple[QueriedState, list[Any], Any, list[QueryAnswer]]:
        asked: list[Any] = []

        def remembered(state: QueriedState) -> tuple[Sequence[Any], Any, Any]:
            keys, map_key, window = question(state)
            asked.extend((state, keys, window))
            return keys, map_key, window

        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[QueryAnswer]] = loop.create_future()

        def settle_soon(result: Any) -> None:
            loop.call_soon_threadsafe(_settle, answer, result)

        self._state_of(call).get_soon(call.path["uid"], call.path["name"], remembered, settle_soon)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answers = await answer
        except TimeoutError:
            raise StateNotReadyError("a slot did not answer in time", hint="Try again.") from None
        return asked[0], asked[1], asked[2], answers

    def _state_of(self, call: ApiCall) -> LiveState:
        queries = self._jobs.require_running(call.job_id).queries
        if not isinstance(queries, LiveState):
            raise RestError(409, f"The state of job {call.job_id} cannot be queried on this server.")
        return queries


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return  # the client has disconnected
    if isinstance(result, CheckdamError):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _shape(state: QueryableState) -> StateShape:
    return StateShape(
        name=state.name,
        kind=state.kind,
        key_type=state.key_type.name,
        type=state.value_type.name,
        entries=state.entries,
        ttl=state.has_ttl,
        map_key_type=msgspec.UNSET if state.map_key_type is None else state.map_key_type.name,
        window_type=msgspec.UNSET if state.window_type is None else state.window_type.name,
    )


def _operator(operator: OperatorRecord, uid: str, states: list[StateShape]) -> OperatorWithStates:
    return OperatorWithStates(
        uid, operator.name, operator.vertex_id, operator.parallelism, operator.max_parallelism, states
    )


def _answer(state: QueriedState, key: Any, window: Any, answer: QueryAnswer) -> KeyAnswer:
    by_window = state.window_type is not None and window is None
    return KeyAnswer(
        epoch=answer.epoch,
        key=to_json(key, state.key_type),
        found=answer.found,
        value=to_json(answer.value, state.answer_type(by_window=by_window)) if answer.found else None,
        key_group=answer.key_group,
        subtask=answer.subtask,
        window=msgspec.UNSET if window is None else to_json(window, state.window_type),
        by_window=by_window or msgspec.UNSET,
    )


def _entry(state: QueriedState, key: Any, window: Any, value: Any) -> KeyEntry:
    return KeyEntry(
        key=to_json(key, state.key_type),
        value=to_json(value, state.held_type),
        key_group=state.key_group_of(key),
        window=msgspec.UNSET if state.window_type is None else to_json(window, state.window_type),
    )


def _window(state: QueriedState, given: Any, read: Callable[[Any, Any], Any]) -> Any:
    if given is None:
        return None
    if state.window_type is None:
        state.encoded_in_window(None, given)  # raises, because it belongs to no window
    return read(given, state.window_type)


def _map_key(state: QueriedState, given: Any, read: Callable[[Any, Any], Any]) -> Any:
    if given is None:
        return None
    if state.map_key_type is None:
        state.encoded_map_key(given)  # raises, because it is not a map state
    return read(given, state.map_key_type)
