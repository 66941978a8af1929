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
from checkdam.runtime.job_control import QueryableState, QueryAnswer, StateOverview
from checkdam.runtime.live_state.queried_state import QueriedState
from checkdam.runtime.live_state.state_queries import LiveState, Question
from checkdam.runtime.live_state.state_slots import StateSlots
from checkdam.runtime.monitor.job_records import OperatorRecord
from checkdam.server.app.endpoint import ApiCall, Endpoint, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.state_api.state_pages import (
    CURSOR,
    FILTER,
    LARGEST_PAGE,
    LIMIT,
    Elements,
    KeyEntry,
    OperatorStateShape,
    Page,
    TimerEntry,
    TimersPage,
    TimersShape,
    elements_of,
    operator_state_shape,
    window_json,
)
from checkdam.state_reader.descriptions import OPERATOR_KINDS
from checkdam.types.json_values import key_from_json, key_from_text, to_json
from checkdam.types.text_filter import check_filter
from checkdam.types.type_text import text_of

_MOST_KEYS = 10_000
_PATIENCE_SECONDS = 30.0


class StateShape(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    name: str
    kind: str
    key_type: str
    type: str
    entries: int
    ttl: bool
    keys: int | None = None  # None: not counted
    entries_are_exact: bool = True  # and the keys
    map_key_type: str | msgspec.UnsetType = msgspec.UNSET
    window_type: str | msgspec.UnsetType = msgspec.UNSET


class OperatorWithStates(msgspec.Struct, frozen=True, rename="kebab"):
    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[StateShape]
    operator_states: list[OperatorStateShape]
    timers: list[TimersShape]


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


def routes(jobs: Jobs) -> list[Endpoint]:
    live = _Live(jobs)
    where = "/jobs/{jobid}/state/{uid}/{name}"
    read = partial(Endpoint, errors=(404, 409, 503), tag="state", writes=False)
    key = Query("key", str, "The key as JSON; a text key may be given without quotes", required=True)
    map_key = Query("map-key", str, "Only this entry of a map state")
    window = Query("window", str, "Only this window of window state, as JSON")
    page = (CURSOR, LIMIT, FILTER)
    one = "The value of a key, as of the last complete epoch"
    many = "The values of many keys; those of one slot as of the same epoch"
    listed = "The keys of a state with their values, page by page"
    slots = "How a client on the same network asks the slots of a state itself, for as long as the attempt runs"
    elements_at = "/jobs/{jobid}/operator-state/{uid}/{name}"
    elements = "The elements of an operator state, page by page; of broadcast state its entries"
    timers = "The next timers of an operator, the earliest of each time domain first"
    return [
        read("GET", "/jobs/{jobid}/state", live.states, "The states and timers of a running job", response=States),
        read("GET", where, live.get, one, response=KeyAnswer, query=(key, map_key, window), is_awaited=True),
        read("POST", where, live.get_many, many, response=KeyAnswers, body=KeysRequest, is_awaited=True),
        read("GET", where + "/keys", live.keys, listed, response=Page, query=page),
        read("GET", where + "/slots", live.slots, slots, response=StateSlots),
        read("GET", elements_at, live.elements, elements, response=Elements, query=page),
        read("GET", "/jobs/{jobid}/timers/{uid}", live.timers, timers, response=TimersPage, query=(LIMIT, FILTER)),
    ]


class _Live:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def states(self, call: ApiCall) -> States:
        overview = self._state_of(call).overview()
        operators = {op.uid or f"operator-{op.id}": op for op in self._jobs.record(call.job_id).operators}
        parts = (overview.keyed, overview.operator, overview.timers)
        uids = dict.fromkeys(each.uid for part in parts for each in part)
        return States(overview.epoch, [_operator(operators[uid], uid, overview) for uid in uids])

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
        text, limit = check_filter(call.query["filter"]), min(call.query["limit"], LARGEST_PAGE)
        page = live.page(uid, name, call.query["cursor"], limit, text)
        state = live.state(uid, name)
        entries = [_entry(state, *state.split(key), value) for key, value in page.entries]
        return Page(page.epoch, entries, page.cursor, msgspec.UNSET if text is None else page.scanned)

    def slots(self, call: ApiCall) -> StateSlots:
        state, attempt, ways = self._state_of(call).access(call.path["uid"], call.path["name"])
        facts = state.facts
        return StateSlots(
            attempt=attempt,
            key_type=text_of(state.key_type),
            kind=facts.kind,
            type=facts.value_type,
            map_key_type=facts.map_key_type,
            window_type=facts.window_type,
            ttl=facts.has_ttl,
            parallelism=state.parallelism,
            max_parallelism=state.max_parallelism,
            slots=[each.location for each in ways],
            token=ways[0].token if ways else None,
        )

    def elements(self, call: ApiCall) -> Elements:
        text, limit = check_filter(call.query["filter"]), min(call.query["limit"], LARGEST_PAGE)
        place = call.path["uid"], call.path["name"], call.query["cursor"]
        page = self._state_of(call).elements(*place, limit, text)
        entries = elements_of(page.mode, page.element_type, page.entries)
        scanned = msgspec.UNSET if text is None else page.scanned
        return Elements(page.epoch, OPERATOR_KINDS[page.mode], entries, page.cursor, scanned)

    def timers(self, call: ApiCall) -> TimersPage:
        text, limit = check_filter(call.query["filter"]), min(call.query["limit"], LARGEST_PAGE)
        found = self._state_of(call).timers(call.path["uid"], limit, text)
        entries = [
            TimerEntry(
                to_json(each.key, found.key_type),
                each.time,
                each.domain,
                each.key_group,
                window_json(each.window, found.window_type),
            )
            for each in found.timers
        ]
        return TimersPage(found.epoch, entries, None)

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
        entries=state.held.entries,
        keys=state.held.keys,
        entries_are_exact=state.held.is_exact,
        ttl=state.has_ttl,
        map_key_type=msgspec.UNSET if state.map_key_type is None else state.map_key_type.name,
        window_type=msgspec.UNSET if state.window_type is None else state.window_type.name,
    )


def _operator(operator: OperatorRecord, uid: str, found: StateOverview) -> OperatorWithStates:
    return OperatorWithStates(
        uid,
        operator.name,
        operator.vertex_id,
        operator.parallelism,
        operator.max_parallelism,
        [_shape(each) for each in found.keyed if each.uid == uid],
        [
            operator_state_shape(each.name, each.mode, each.element_type, each.elements)
            for each in found.operator
            if each.uid == uid
        ],
        [TimersShape(each.domain, each.count, each.next) for each in found.timers if each.uid == uid],
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
        window=window_json(window, state.window_type),
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
