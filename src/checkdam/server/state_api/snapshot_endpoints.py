"""State of the job's retained checkpoints and savepoints, and the differences between two of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from checkdam.errors import StateAccessError, UsageError
from checkdam.flink.metadata import operator_id
from checkdam.runtime.monitor.job_records import CheckpointRecord, CheckpointStatus, JobRecord
from checkdam.runtime.monitor.masking import without_credentials
from checkdam.server.app.endpoint import ApiCall, Endpoint, Natural, Query
from checkdam.server.app.http_errors import RestError
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.state_api.live_state_endpoints import KeyAnswer
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
    window_json,
)
from checkdam.state_reader.columns import is_hashable, positional
from checkdam.state_reader.descriptions import OPERATOR_KINDS, StateDescription
from checkdam.state_reader.diffing import diff
from checkdam.state_reader.json_rows import json_example
from checkdam.state_reader.keyed_states import KeyedState
from checkdam.state_reader.operator_states import BroadcastState, OperatorListState
from checkdam.state_reader.pages import elements_page, page, timers_page
from checkdam.state_reader.savepoint_reader import Savepoint
from checkdam.state_reader.timer_states import DOMAINS
from checkdam.types.json_values import key_from_text, to_json
from checkdam.types.text_filter import check_filter
from checkdam.types.type_info import TypeInfo

_T = TypeVar("_T")
_CACHED = 64  # results: descriptions, key groups and differences; their size does not depend on the state's


class Snapshot(msgspec.Struct, frozen=True):
    ref: str
    path: str
    kind: str
    epoch: int
    completed: int
    state_size: int


class Snapshots(msgspec.Struct, frozen=True):
    snapshots: list[Snapshot]


class KeyedStateView(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    name: str
    kind: str
    key_type: str
    type: str
    entries: int | None
    ttl: bool
    map_key_type: str | msgspec.UnsetType = msgspec.UNSET
    window_type: str | msgspec.UnsetType = msgspec.UNSET
    entries_are_exact: bool | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType | None = msgspec.UNSET


class OperatorView(msgspec.Struct, frozen=True, rename="kebab"):
    uid: str
    name: str
    vertex: str
    parallelism: int
    max_parallelism: int
    states: list[KeyedStateView]
    operator_states: list[OperatorStateShape]
    timers: list[TimersShape]


class SnapshotState(msgspec.Struct, frozen=True):
    epoch: int
    operators: list[OperatorView]


class KeyGroup(msgspec.Struct, frozen=True, rename="kebab"):
    key_group: int
    entries: int
    bytes: int
    subtask: int


class KeyGroups(msgspec.Struct, frozen=True, rename="kebab"):
    key_groups: list[KeyGroup]
    max_parallelism: int


class Difference(msgspec.Struct, frozen=True):
    what: str
    key: Any
    before: Any
    after: Any


class StateDifference(msgspec.Struct, frozen=True):
    uid: str
    name: str
    kind: str
    added: int
    changed: int
    removed: int
    unchanged: int
    examples: list[Difference]


class Differences(msgspec.Struct, frozen=True):
    states: list[StateDifference]


class Cache:
    """An LRU cache of results. Snapshots never change, so results never become stale.

    Concurrent requests for the same result compute it once.
    """

    def __init__(self, size: int = _CACHED) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, _Once] = OrderedDict()

    def get(self, asked: Any, make: Callable[[], _T]) -> _T:
        with self._lock:
            once = self._kept.setdefault(asked, _Once())
            self._kept.move_to_end(asked)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        with once.lock:
            if not once.is_done:  # also after a failure: the next request retries
                once.result = make()
                once.is_done = True
        found: _T = once.result
        return found


class _Once:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_done = False
        self.result: Any = None


@dataclass(frozen=True)
class _Snapshots:
    """The snapshots of the jobs that a server knows; nothing else can be read through it."""

    jobs: Jobs
    cache: Cache

    def listed(self, call: ApiCall) -> Snapshots:
        return Snapshots([_listed(each) for each in _known(self.jobs.record_as_stored(call.job_id)).values()])

    def states(self, call: ApiCall) -> SnapshotState:
        record, savepoint = self._opened(call)
        return self.cache.get(("states", savepoint.path), lambda: _states(record, savepoint))

    def key(self, call: ApiCall) -> KeyAnswer:
        _, savepoint = self._opened(call)
        state = _keyed(savepoint, call)
        key = key_from_text(call.query["key"], state.key_type)
        value, of, group = state.get(key), state.answer_type, state.key_group_of(key)
        window = _window(state, call.query["window"])
        if window is not None:
            value, of = (value or {}).get(window), state.held_type
        if call.query["map-key"] is not None:
            value, of = _of_map_key(state, value, call.query["map-key"], is_one=window is not None)
        return KeyAnswer(
            epoch=savepoint.epoch,
            key=to_json(key, state.key_type),
            found=value is not None,
            value=to_json(value, of),
            key_group=group,
            subtask=state.subtask_of(group),
            window=msgspec.UNSET if window is None else to_json(window, state.window_type),
            by_window=(state.has_window and window is None) or msgspec.UNSET,
        )

    def keys(self, call: ApiCall) -> Page:
        _, savepoint = self._opened(call)
        state = _keyed(savepoint, call)
        return _page(savepoint, state, call.query["cursor"], _limit(call), check_filter(call.query["filter"]))

    def elements(self, call: ApiCall) -> Elements:
        _, savepoint = self._opened(call)
        return _elements(savepoint, call)

    def timers(self, call: ApiCall) -> TimersPage:
        _, savepoint = self._opened(call)
        content = savepoint.timers(call.path["uid"])
        text = check_filter(call.query["filter"])
        found, following, scanned = timers_page(content, call.query["cursor"], _limit(call), text)
        of_key, of_window = content.key_type, content.window_type
        entries = [
            TimerEntry(to_json(key, of_key), time, domain, group, window_json(window, of_window))
            for key, window, time, domain, group in found
        ]
        return TimersPage(savepoint.epoch, entries, following, msgspec.UNSET if text is None else scanned)

    def key_groups(self, call: ApiCall) -> KeyGroups:
        _, savepoint = self._opened(call)
        state = _keyed(savepoint, call)
        return self.cache.get(("key groups", savepoint.path, state.description), lambda: _key_groups(state))

    def differences(self, call: ApiCall) -> Differences:
        known = _known(self.jobs.record_as_stored(call.job_id))
        old, new = (_open(known, call.path[ref]) for ref in ("ref", "other"))
        uid, name, limit = call.query["uid"], call.query["name"], min(call.query["limit"], LARGEST_PAGE)
        asked = "diff", old.path, new.path, uid, name, limit
        return self.cache.get(asked, lambda: _differences(old, new, uid, name, limit))

    def _opened(self, call: ApiCall) -> tuple[JobRecord, Savepoint]:
        record = self.jobs.record_as_stored(call.job_id)
        return record, _open(_known(record), call.path["ref"])


def _known(record: JobRecord) -> dict[str, CheckpointRecord]:
    """Return the snapshots that can be read now, newest first, by the last segment of their path."""
    complete = [
        each
        for each in (*record.savepoints, *record.checkpoints)
        if each.status is CheckpointStatus.COMPLETED and each.path and not each.is_discarded
    ]
    by_ref = {_ref(each): each for each in complete}
    return dict(sorted(by_ref.items(), key=lambda each: (each[1].finished_at, each[1].id), reverse=True))


def _ref(snapshot: CheckpointRecord) -> str:
    return (snapshot.path or "").rstrip("/").rpartition("/")[2]


def _open(known: dict[str, CheckpointRecord], ref: str) -> Savepoint:
    if ref not in known or known[ref].path is None:
        available = ", ".join(known) or "none"
        raise RestError(404, f"The job has no readable checkpoint or savepoint {ref}. Available: {available}.")
    return Savepoint.load(str(known[ref].path))


def _listed(snapshot: CheckpointRecord) -> Snapshot:
    return Snapshot(
        _ref(snapshot),
        without_credentials(snapshot.path or ""),
        snapshot.kind.value,
        snapshot.epoch,
        snapshot.finished_at,
        snapshot.state_bytes,
    )


def _states(record: JobRecord, savepoint: Savepoint) -> SnapshotState:
    vertices = {operator.uid: operator.vertex_id for operator in record.operators if operator.uid}
    operators = []
    for operator in savepoint.operators:
        states = savepoint.states(operator.uid)
        operators.append(
            OperatorView(
                operator.uid,
                operator.name,
                vertices.get(operator.uid) or operator_id(operator.uid).hex(),
                operator.parallelism,
                operator.max_parallelism,
                [_keyed_view(state) for state in states if state.is_keyed and not state.is_timers],
                [_operator_state_view(state) for state in states if not state.is_keyed],
                [TimersShape(DOMAINS[each.name], each.entries) for each in states if each.name in DOMAINS],
            )
        )
    return SnapshotState(savepoint.epoch, operators)


def _keyed_view(state: StateDescription) -> KeyedStateView:
    return KeyedStateView(
        state.name,
        state.kind,
        state.key_type or "",
        state.type,
        state.entries,
        state.ttl,
        state.map_key_type or msgspec.UNSET,
        state.window_type or msgspec.UNSET,
        state.entries_are_exact,
        state.bytes,
    )


def _operator_state_view(state: StateDescription) -> OperatorStateShape:
    of_key = state.map_key_type or msgspec.UNSET
    return OperatorStateShape(state.name, state.kind, state.type, state.entries or 0, of_key)


def _limit(call: ApiCall) -> int:
    return min(int(call.query["limit"]), LARGEST_PAGE)


def _keyed(savepoint: Savepoint, call: ApiCall) -> KeyedState:
    uid, name = call.path["uid"], call.path["name"]
    savepoint.check(uid, name)
    state = next((each for each in savepoint.states(uid) if each.name == name and each.is_keyed), None)
    content = None if state is None else savepoint.content_of(state)
    if not isinstance(content, KeyedState):
        raise StateAccessError(f'state "{name}" of operator "{uid}" has no keys', hint="Name a keyed state.")
    return content


def _window(state: KeyedState, text: str | None) -> Any:
    if text is None:
        return None
    if state.window_type is None:
        raise UsageError(f'state "{state.description.name}" belongs to no window', hint="Leave window out.")
    window = key_from_text(text, state.window_type)
    return window if is_hashable(state.window_type) else positional(state.window_type, window)


def _of_map_key(state: KeyedState, value: Any, text: str, *, is_one: bool) -> tuple[Any, TypeInfo]:
    """Return the value and type of one map entry; `is_one` if the value is that of one window."""
    *_, (name, of) = state.part_types
    if name != "map_key":
        raise UsageError(f'state "{state.description.name}" is not a map', hint="Leave map-key out.")
    if state.has_window and not is_one:
        raise UsageError(f'state "{state.description.name}" has a map for each window', hint="Give a window as well.")
    map_key = key_from_text(text, of)
    return (value or {}).get(map_key if is_hashable(of) else positional(of, map_key)), state.value_type


def _page(savepoint: Savepoint, state: KeyedState, cursor: str | None, limit: int, text: str | None) -> Page:
    found, following, scanned = page(state, cursor, limit, text)
    of_window = state.window_type
    entries = []
    for holder, value, group, _ in found:
        key, window = (holder, None) if of_window is None else holder
        shown = to_json(key, state.key_type), to_json(value, state.held_type)
        entries.append(KeyEntry(*shown, group, window_json(window, of_window)))
    return Page(savepoint.epoch, entries, following, msgspec.UNSET if text is None else scanned)


def _elements(savepoint: Savepoint, call: ApiCall) -> Elements:
    uid, name = call.path["uid"], call.path["name"]
    savepoint.check(uid, name)
    state = next((each for each in savepoint.states(uid) if each.name == name and not each.is_keyed), None)
    if state is None:
        raise StateAccessError(f'state "{name}" of operator "{uid}" has keys', hint="Name an operator state.")
    text = check_filter(call.query["filter"])
    content = savepoint.content_of(state)
    assert isinstance(content, BroadcastState | OperatorListState)
    found, following, scanned = elements_page(content, call.query["cursor"], _limit(call), text)
    mode = next(mode for mode, kind in OPERATOR_KINDS.items() if kind == state.kind)
    entries = elements_of(mode, content.element_type, found)
    return Elements(savepoint.epoch, state.kind, entries, following, msgspec.UNSET if text is None else scanned)


def _key_groups(state: KeyedState) -> KeyGroups:
    sizes = [KeyGroup(each.key_group, each.entries, each.bytes, each.subtask) for each in state.key_groups()]
    return KeyGroups(sizes, state.max_parallelism)


def _differences(old: Savepoint, new: Savepoint, uid: str | None, name: str | None, limit: int) -> Differences:
    return Differences(
        [
            StateDifference(
                each.description.uid,
                each.description.name,
                each.description.kind,
                each.added,
                each.changed,
                each.removed,
                each.unchanged,
                [Difference(**json_example(example, each.content)) for example in each.examples],
            )
            for each in diff(old, new, uid, name, examples=limit)
        ]
    )


def routes(jobs: Jobs) -> list[Endpoint]:
    """Return the endpoints below /jobs/:id/snapshots."""
    snapshots = _Snapshots(jobs, Cache())
    get = partial(Endpoint, "GET", tag="state", errors=(404, 409, 503))
    all_of_job = "/jobs/{jobid}/snapshots"
    one = all_of_job + "/{ref}"
    state = one + "/state/{uid}/{name}"
    key = Query("key", str, "The key as JSON; a text key may be given without quotes", required=True)
    map_key = Query("map-key", str, "Only this entry of a map state; written like a key")
    window = Query("window", str, "Only this window of window state, as JSON")
    page_of = (CURSOR, LIMIT, FILTER)
    elements = one + "/operator-state/{uid}/{name}"
    changes_of = (
        Query("uid", str, "Only this operator"),
        Query("name", str, "Only this state"),
        Query("limit", Natural, "Most examples of each state", default=100),
    )
    changed = "What changed from one snapshot to the other"
    return [
        get(all_of_job, snapshots.listed, "Checkpoints and savepoints that can be read", response=Snapshots),
        get(one + "/state", snapshots.states, "States in a snapshot", response=SnapshotState),
        get(state, snapshots.key, "The value of a key", response=KeyAnswer, query=(key, map_key, window)),
        get(state + "/keys", snapshots.keys, "The keys of a state, page by page", response=Page, query=page_of),
        get(state + "/key-groups", snapshots.key_groups, "Entries and bytes of each key group", response=KeyGroups),
        get(elements, snapshots.elements, "The elements of an operator state", response=Elements, query=page_of),
        get(one + "/timers/{uid}", snapshots.timers, "The timers of an operator", response=TimersPage, query=page_of),
        get(one + "/diff/{other}", snapshots.differences, changed, response=Differences, query=changes_of),
    ]
