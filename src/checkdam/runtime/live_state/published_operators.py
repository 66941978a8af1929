"""Operator states and timers of a slot as of the end of an epoch, for readers in any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from checkdam.backends.published_view import not_asked_for
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.graph.contexts import TimeDomain
from checkdam.graph.operators import Operator
from checkdam.ids import Epoch
from checkdam.runtime.live_state.query_messages import (
    FoundElements,
    FoundTimers,
    GetElements,
    GetTimers,
    OperatorStateFacts,
    Timer,
    TimerFacts,
)
from checkdam.runtime.slot.operator_state import OperatorStates, ReadableState
from checkdam.runtime.slot.process import Process
from checkdam.state.snapshot_handles import Redistribution
from checkdam.types.serializers import serializer
from checkdam.types.text_filter import MOST_SCANNED, TextFilter
from checkdam.types.type_info import TypeInfo
from checkdam.types.type_text import text_of

MOST_TIMERS: Final = 1000
"""How many timers of a domain a slot publishes: the next ones. A copy of all would take too long each epoch."""


class ReadOperator(Protocol):
    """One operator of the slot. Its methods are called between epochs only."""

    operator: Operator
    process: Process
    states: OperatorStates | None

    def operator_state_sizes(self) -> Sequence[tuple[str, Redistribution, str, int]]: ...

    def operator_states(self) -> Sequence[ReadableState]: ...


class PublishedSizes:
    """How many elements operator states hold, and how many timers there are. Cheap: nothing is copied."""

    def __init__(self, operators: Mapping[str, ReadOperator]) -> None:
        self._operators = operators
        self.states: list[OperatorStateFacts] = []
        self.timers: list[TimerFacts] = []

    def publish(self) -> None:
        operators = self._operators.items()
        self.states = [OperatorStateFacts(uid, *each) for uid, op in operators for each in op.operator_state_sizes()]
        self.timers = [
            TimerFacts(uid, queue.domain.value, len(queue), queue.next_time)
            for uid, op in operators
            if op.process.timers is not None
            for queue in op.process.timers.queues
        ]

    @property
    def not_asked_for(self) -> list[tuple[str, str]]:
        """Uid and name of restored operator states that no function has declared yet."""
        return [
            (uid, name)
            for uid, op in list(self._operators.items())
            for name in (op.states.not_asked_for if op.states is not None else ())
        ]


class PublishedElements:
    """The elements of operator states. Immutable ones are shared with the live state, others encoded."""

    def __init__(self, operators: Mapping[str, ReadOperator]) -> None:
        self._operators = operators
        self._published: tuple[Epoch, dict[str, dict[str, ReadableState] | CheckdamError]] | None = None

    def publish(self, epoch: Epoch) -> None:
        self._published = epoch, {uid: _states_of(uid, each) for uid, each in self._operators.items()}

    def drop(self) -> None:
        self._published = None

    def page(self, ask: GetElements) -> FoundElements:
        if self._published is None:
            raise StateNotReadyError("the slot no longer tells its operator state", hint="Ask again.")
        epoch, by_uid = self._published
        states = by_uid.get(ask.uid, {})
        if isinstance(states, CheckdamError):
            raise states
        state = states.get(ask.name)
        if state is None:
            opened = self._operators.get(ask.uid)
            if opened is not None and opened.states is not None and ask.name in opened.states.not_asked_for:
                raise not_asked_for(ask.uid, ask.name)
            return FoundElements(epoch, None, "", [], None, 0)
        stop = min(len(state.elements), ask.start + MOST_SCANNED)
        places = range(ask.start, stop)
        found = list(islice(places if ask.text is None else filter(state.filter_of(ask.text), places), ask.limit))
        place = found[-1] + 1 if len(found) == ask.limit else max(stop, ask.start)
        following = place if place < len(state.elements) else None
        elements = [state.encoded(at) for at in found]
        return FoundElements(epoch, state.redistribution, state.type, elements, following, place - ask.start)


def _states_of(uid: str, opened: ReadOperator) -> dict[str, ReadableState] | CheckdamError:
    """Return the states of an operator by name, or why they cannot be read: readers must not fail the job."""
    try:
        return {state.name: state for state in opened.operator_states()}
    except Exception as failure:  # noqa: BLE001  pickling runs the user's code
        words = failure.message if isinstance(failure, CheckdamError) else f"{type(failure).__name__}: {failure}"
        return StateAccessError(f'operator state of operator "{uid}" cannot be read: {words}')


@dataclass(frozen=True)
class _NextTimers:
    """The next timers of one operator, by domain, and how many there are in all."""

    key_type: TypeInfo
    window_type: TypeInfo | None
    by_domain: Sequence[tuple[TimeDomain, list[tuple[int, Any]]]]
    count: int


class PublishedTimers:
    """The next timers of each operator."""

    def __init__(self, operators: Mapping[str, ReadOperator]) -> None:
        self._operators = operators
        self._published: tuple[Epoch, dict[str, _NextTimers]] | None = None

    def publish(self, epoch: Epoch) -> None:
        self._published = (
            epoch,
            {
                uid: _NextTimers(
                    each.operator.key.type,
                    timers.event.window_type,
                    [(queue.domain, queue.earliest(MOST_TIMERS)) for queue in timers.queues],
                    sum(map(len, timers.queues)),
                )
                for uid, each in self._operators.items()
                if (timers := each.process.timers) is not None and each.operator.key is not None
            },
        )

    def drop(self) -> None:
        self._published = None

    def next(self, ask: GetTimers) -> FoundTimers:
        if self._published is None:
            raise StateNotReadyError("the slot no longer tells its timers", hint="Ask again.")
        epoch, by_uid = self._published
        timers = by_uid.get(ask.uid)
        if timers is None:
            return FoundTimers(epoch, [], None, 0)
        key_of = serializer(timers.key_type).encode_key
        of_window = timers.window_type
        window_of = None if of_window is None else serializer(of_window).encode_key
        matches = None if ask.text is None else TextFilter(ask.text, timers.key_type)
        found: list[Timer] = []
        for domain, earliest in timers.by_domain:
            split = ((time, *((holder, None) if of_window is None else holder)) for time, holder in earliest)
            wanted = (each for each in split if matches is None or matches(each[1]))
            found += (
                Timer(domain.value, time, key_of(key), None if window_of is None else window_of(window))
                for time, key, window in islice(wanted, ask.limit)
            )
        return FoundTimers(epoch, found, None if of_window is None else text_of(of_window), timers.count)
