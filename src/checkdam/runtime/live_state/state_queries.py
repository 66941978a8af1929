"""Live state of a running job: finds the slot of a key, queries it, and decodes the answer."""

from __future__ import annotations

import base64
import binascii
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from checkdam.backends.published_view import not_asked_for, unknown_state
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.graph.operators import Operator
from checkdam.ids import Attempt, Epoch
from checkdam.runtime.driver.slot_group import LiveSlots
from checkdam.runtime.job_control import (
    ElementsPage,
    KeysPage,
    NextTimers,
    QueryableState,
    QueryAnswer,
    StateOverview,
)
from checkdam.runtime.live_state.joined_answers import all_operator_states, all_timers, next_timers
from checkdam.runtime.live_state.queried_state import QueriedState, keyed_operators, no_such_operator
from checkdam.runtime.live_state.query_channel import SlotChannel
from checkdam.runtime.live_state.query_connection import QueryAccess
from checkdam.runtime.live_state.query_messages import (
    Answer,
    Ask,
    FindKeys,
    FoundElements,
    FoundKeys,
    FoundPage,
    FoundStates,
    FoundTimers,
    FoundWindows,
    GetElements,
    GetKeys,
    GetPage,
    GetTimers,
    GetWindows,
    ListStates,
    Refused,
    StateFacts,
)
from checkdam.state.snapshot_handles import Redistribution
from checkdam.state.state_count import StateCount, count_of_parts
from checkdam.types.serializers import serializer
from checkdam.types.text_filter import MOST_SCANNED
from checkdam.types.type_text import type_from_text

_PATIENCE_SECONDS = 30.0

Reply = Callable[[Any], None]
"""Receives the result, or a CheckdamError in its place."""

Question = Callable[[QueriedState], tuple[Sequence[Any], Any, Any]]
"""Keys, a map key or None, and a window or None."""


class LiveState:
    """The StateQueries of a job. `live` returns the slots of the running attempt; None while there is none.

    A method that ends in `_soon` returns at once and passes its result on in another thread, which must not be blocked.
    """

    def __init__(self, live: Callable[[], LiveSlots | None]) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None

    def states(self) -> Sequence[QueryableState]:
        return self.overview().keyed

    def overview(self) -> StateOverview:
        attempt = self._current()
        result: Future[Any] = Future()
        attempt.list_states(result.set_result)
        found: list[FoundStates] = _value(result)
        held: defaultdict[tuple[str, str], list[StateCount]] = defaultdict(list)
        for facts in (each for slot in found for each in slot.states):
            held[facts.uid, facts.name].append(facts.held)
        return StateOverview(
            Epoch(max((each.epoch for each in found), default=-1)),
            [attempt.states[place].described(count_of_parts(counts)) for place, counts in held.items()],
            all_operator_states(found),
            all_timers(found),
        )

    def get(
        self, uid: str, name: str, keys: Sequence[Any], *, map_key: Any = None, window: Any = None
    ) -> Sequence[QueryAnswer]:
        result: Future[Any] = Future()
        self.get_soon(uid, name, lambda _: (keys, map_key, window), result.set_result)
        answers: list[QueryAnswer] = _value(result)
        return answers

    def get_soon(self, uid: str, name: str, question: Question, reply: Reply) -> None:
        """Pass on one answer per key. Raises nothing: errors of the query are passed on too.

        `question` returns the keys, and map key and window if any, once the key type of the state is known.
        """

        def ask(attempt: _Attempt, state: QueriedState) -> None:
            keys, map_key, window = question(state)
            attempt.get(state, keys, None if map_key is None else state.encoded_map_key(map_key), window, reply)

        self._state_soon(uid, name, reply, ask)

    def _state_soon(self, uid: str, name: str, reply: Reply, then: Callable[[_Attempt, QueriedState], None]) -> None:
        """Call `then` when the type of a state is known: at once, except for the first query of an attempt."""
        try:
            attempt = self._current()
            state = attempt.states.get((uid, name))
            if state is not None:
                then(attempt, state)
                return
            attempt.operator(uid)
        except CheckdamError as error:
            reply(error)
            return

        def listed(result: Any) -> None:
            try:
                if isinstance(result, CheckdamError):
                    raise result
                then(attempt, attempt.state(uid, name))
            except CheckdamError as error:
                reply(error)

        attempt.list_states(listed)

    def state(self, uid: str, name: str) -> QueriedState:
        result: Future[Any] = Future()
        self._state_soon(uid, name, result.set_result, lambda _, state: result.set_result(state))
        state: QueriedState = _value(result)
        return state

    def access(self, uid: str, name: str) -> tuple[QueriedState, Attempt, list[QueryAccess]]:
        """Return a state, the running attempt, and how its slots can be asked without the driver, by subtask.

        No slots are returned if one of them cannot be asked so.
        """
        known: Future[Any] = Future()  # of one attempt: the slots of the next have other tokens
        self._state_soon(uid, name, known.set_result, lambda attempt, state: known.set_result((attempt, state)))
        attempt, state = _value(known)
        ways = [slot.query_access for slot in attempt.slots[: state.parallelism]]
        return state, attempt.id, [] if None in ways else ways

    def page(self, uid: str, name: str, cursor: str | None, limit: int, text: str | None = None) -> KeysPage:
        """Return at most `limit` keys, all of one slot as of one epoch. The pages together hold every key once if
        nothing changes between them; otherwise a key that is added or removed meanwhile may be missed or repeated.

        With `text` only keys whose JSON contains it: then a page may be empty before the last.
        """
        known: Future[Any] = Future()  # of one attempt: the next may have fewer slots
        self._state_soon(uid, name, known.set_result, lambda attempt, state: known.set_result((attempt, state)))
        attempt, state = _value(known)
        subtask, after = _place(cursor, state.parallelism)
        scanned = 0
        while True:
            ask = GetPage(uid, name, after, limit) if text is None else FindKeys(uid, name, after, limit, text)
            found = attempt.ask_one(subtask, ask)
            assert isinstance(found, FoundPage)
            scanned += found.scanned
            subtask, after = (subtask, found.after) if found.after is not None else (subtask + 1, b"")
            is_last = subtask >= state.parallelism
            if found.entries or is_last or scanned >= MOST_SCANNED:
                entries = [(state.key(key), state.value(value)) for key, value in found.entries]
                return KeysPage(Epoch(found.epoch), entries, None if is_last else _cursor(subtask, after), scanned)

    def elements(self, uid: str, name: str, cursor: str | None, limit: int, text: str | None = None) -> ElementsPage:
        """Return at most `limit` elements of an operator state, all of one slot as of one epoch.

        Broadcast state is told as the first slot has it. With `text` only elements whose JSON contains it; of
        broadcast state those whose key does.
        """
        attempt = self._current()
        slots = attempt.parallelism_of(uid)
        subtask, after = _place(cursor, slots)
        start, scanned = _number(after), 0
        while True:
            found = attempt.ask_one(subtask, GetElements(uid, name, start, limit, text))
            assert isinstance(found, FoundElements)
            scanned += found.scanned
            is_broadcast = found.mode == Redistribution.BROADCAST
            here = subtask
            subtask, start = (subtask, found.next) if found.next is not None else (subtask + 1, 0)
            is_last = subtask >= slots or (is_broadcast and found.next is None)
            if found.elements or is_last or scanned >= MOST_SCANNED:
                mode, of = (
                    attempt.shape_of_elements(uid, name) if found.mode is None else (found.mode, found.element_type)
                )
                decode = serializer(element_type := type_from_text(of)).decode_one
                entries = [(here, decode(each)) for each in found.elements]
                following = None if is_last else _cursor(subtask, b"%d" % start)
                return ElementsPage(Epoch(found.epoch), Redistribution(mode), element_type, entries, following, scanned)

    def timers(self, uid: str, limit: int, text: str | None = None) -> NextTimers:
        """Return the next timers of an operator over all slots; with `text`, those of keys whose JSON contains it.

        A slot knows its next timers only, so a filter finds none beyond these.
        """
        attempt = self._current()
        operator = attempt.operator(uid)
        slots = range(operator.parallelism or 1)
        found: list[FoundTimers] = attempt.ask_each(slots, GetTimers(uid, limit, text))
        return next_timers(attempt.plan, operator, found, limit)

    def _current(self) -> _Attempt:
        live = self._live()
        if live is None:
            raise StateNotReadyError(
                "the job has no slots with state right now",
                hint="It starts, fails over, changes its parallelism or has ended: ask again.",
            )
        attempt = self._attempt
        if attempt is None or attempt.id != live.attempt:
            with self._lock:
                attempt = self._attempt
                if attempt is None or attempt.id != live.attempt:
                    self._attempt = attempt = _Attempt(live)
        return attempt


class _Attempt:
    """The known facts about the running attempt."""

    def __init__(self, live: LiveSlots) -> None:
        self.id: Attempt = live.attempt
        self.slots = live.slots
        self.channels = [SlotChannel(slot) for slot in live.slots]
        self.states: dict[tuple[str, str], QueriedState] = {}
        self._not_asked_for: set[tuple[str, str]] = set()
        self.plan = live.plan
        self._operators = keyed_operators(live.plan)

    def operator(self, uid: str) -> Operator:
        if uid not in self._operators:
            raise no_such_operator(uid, list(self._operators))
        return self._operators[uid]

    def state(self, uid: str, name: str) -> QueriedState:
        if (uid, name) not in self.states and (uid, name) in self._not_asked_for:
            raise not_asked_for(uid, name)
        if (uid, name) not in self.states:
            raise unknown_state(uid, name, [known for of, known in self.states if of == uid])
        return self.states[uid, name]

    def parallelism_of(self, uid: str) -> int:
        """Return the parallelism of any operator that runs in the slots."""
        found = {op.uid or f"operator-{op.id}": op for level in self.plan.levels for op in level.operators}
        if uid not in found:
            raise StateAccessError(f'the job has no operator "{uid}" in its slots', hint=f"It has {_listed(found)}.")
        return found[uid].parallelism or 1

    def shape_of_elements(self, uid: str, name: str) -> tuple[int, str]:
        """Return mode and element type of an operator state that this slot does not have, but another may.

        Raises:
            StateAccessError: none has it.
        """
        found: list[FoundStates] = self.ask_each(range(len(self.channels)), ListStates())
        known = {(each.uid, each.name): each for slot in found for each in slot.operator_states}
        if (uid, name) not in known:
            names = [each for of, each in known if of == uid]
            raise StateAccessError(
                f'operator "{uid}" has no operator state "{name}"',
                hint=f"It has {_listed(names)}." if names else "It has not asked for any operator state.",
            )
        return known[uid, name].mode, known[uid, name].element_type

    def ask_one(self, subtask: int, ask: Ask) -> Any:
        result: Future[Any] = Future()
        self.channels[subtask].ask(ask, result.set_result)
        return _value(result)

    def ask_each(self, subtasks: Iterable[int], ask: Ask) -> Any:
        result: Future[Any] = Future()
        self._ask_all([(self.channels[subtask], ask) for subtask in subtasks], result.set_result)
        return _value(result)

    def list_states(self, reply: Reply) -> None:
        """Ask every slot for its states, and record those not known yet."""

        def learn(found: Any) -> None:
            slots: list[FoundStates] = [] if isinstance(found, CheckdamError) else found
            self._not_asked_for = {place for slot in slots for place in slot.not_asked_for}
            try:
                for facts in (each for slot in slots for each in slot.states):
                    place = (facts.uid, facts.name)
                    if place not in self.states:
                        self.states[place] = self._queried(facts)
            except CheckdamError as error:
                found = error
            reply(found)

        self._ask_all([(channel, ListStates()) for channel in self.channels], learn)

    def _queried(self, facts: StateFacts) -> QueriedState:
        operator = self.operator(facts.uid)
        assert operator.key is not None
        return QueriedState(facts, operator.key.type, operator.parallelism or 1, self.plan.key_groups_of(operator.id))

    def get(self, state: QueriedState, keys: Sequence[Any], map_key: bytes | None, window: Any, reply: Reply) -> None:
        """Query keys, with one call per slot."""
        if len(keys) == 1:
            self._get_one(state, keys[0], map_key, window, reply)
            return
        encoded = [_encoded(state, key, window) for key in keys]
        get = _request(state, window)
        groups = [state.key_group_of(key) for key in keys]
        places: dict[int, list[int]] = {}
        for place, group in enumerate(groups):
            places.setdefault(state.subtask_of(group), []).append(place)

        def reply_all(found: Any) -> None:
            reply(found if isinstance(found, CheckdamError) else joined(found))

        def joined(found: list[FoundKeys | FoundWindows]) -> Any:
            answers: list[Any] = [None] * len(keys)
            try:
                for asked, each in zip(places.values(), found, strict=True):
                    for place, answer in zip(asked, state.answers([groups[at] for at in asked], each), strict=True):
                        answers[place] = answer
            except CheckdamError as error:
                return error
            return answers

        self._ask_all(
            [
                (self.channels[subtask], get(state.uid, state.name, [encoded[at] for at in asked], map_key))
                for subtask, asked in places.items()
            ],
            reply_all,
        )

    def _get_one(self, state: QueriedState, key: Any, map_key: bytes | None, window: Any, reply: Reply) -> None:
        """Query one key: a shortcut for the most frequent query."""
        encoded, group = _encoded(state, key, window), state.key_group_of(key)
        get = _request(state, window)

        def answered(answer: Answer) -> None:
            if isinstance(answer, Refused):
                reply(answer.error())
                return
            assert isinstance(answer, FoundKeys | FoundWindows)
            try:
                reply(state.answers((group,), answer))
            except CheckdamError as error:
                reply(error)

        self.channels[state.subtask_of(group)].ask(get(state.uid, state.name, [encoded], map_key), answered)

    def _ask_all(self, asks: list[tuple[SlotChannel, Ask]], reply: Reply) -> None:
        """Pass on all answers in the order of the queries, or the first error, when the last one has arrived."""
        if not asks:
            reply([])
            return
        answers: list[Any] = [None] * len(asks)
        left = len(asks)
        lock = threading.Lock()

        def take(place: int, answer: Answer) -> None:
            nonlocal left
            with lock:
                answers[place] = answer
                left -= 1
                if left:
                    return
            reply(next((each.error() for each in answers if isinstance(each, Refused)), answers))

        for place, (channel, ask) in enumerate(asks):
            channel.ask(ask, lambda answer, place=place: take(place, answer))  # type: ignore[misc]


def _encoded(state: QueriedState, key: Any, window: Any) -> bytes:
    return state.encoded(key) if window is None else state.encoded_in_window(key, window)


def _request(state: QueriedState, window: Any) -> type[GetKeys | GetWindows]:
    """Return the request for the content of keys: of all their windows, if the state has any and none is chosen."""
    return GetKeys if state.window_type is None or window is not None else GetWindows


def _value(result: Future[Any]) -> Any:
    try:
        reply = result.result(_PATIENCE_SECONDS)
    except TimeoutError:
        reply = StateNotReadyError("a slot has not answered in time", hint="Ask again.")
    if isinstance(reply, Refused):
        reply = reply.error()
    if isinstance(reply, CheckdamError):
        raise reply
    return reply


def _cursor(subtask: int, after: bytes) -> str:
    return f"{subtask}.{base64.urlsafe_b64encode(after).decode().rstrip('=')}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in sorted(names))


def _number(after: bytes) -> int:
    if after and not (after.isdigit() and len(after) < 19):
        raise StateAccessError("there is no such place to go on from", hint="Begin without a cursor.")
    return int(after or b"0")


def _place(cursor: str | None, slots: int) -> tuple[int, bytes]:
    if not cursor:
        return 0, b""
    subtask, point, after = cursor.partition(".")
    wrong = StateAccessError(f'there is no page "{cursor[:200]}"', hint="Begin without a cursor.")
    if not (subtask.isascii() and subtask.isdigit() and point and len(subtask) < 10 and int(subtask) < slots):
        raise wrong
    try:
        return int(subtask), base64.b64decode(after + "=" * (-len(after) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise wrong from error
