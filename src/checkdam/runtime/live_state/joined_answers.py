"""Joins the answers of all slots about operator states and timers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter

from checkdam.graph.levels import JobPlan
from checkdam.graph.operators import Operator
from checkdam.ids import Epoch
from checkdam.runtime.job_control import LiveTimer, NextTimers, ReadableOperatorState, ReadableTimers
from checkdam.runtime.live_state.query_messages import FoundStates, FoundTimers
from checkdam.state.key_groups import key_hasher
from checkdam.state.snapshot_handles import Redistribution
from checkdam.types.serializers import serializer
from checkdam.types.type_text import type_from_text


def all_operator_states(slots: Sequence[FoundStates]) -> list[ReadableOperatorState]:
    """Return every operator state once, with the elements of all slots; of broadcast state with those of the first."""
    found: dict[tuple[str, str], ReadableOperatorState] = {}
    for facts in (each for slot in slots for each in slot.operator_states):
        before = found.get((facts.uid, facts.name))
        if before is None:
            found[facts.uid, facts.name] = ReadableOperatorState(
                facts.uid, facts.name, Redistribution(facts.mode), type_from_text(facts.element_type), facts.elements
            )
        elif before.mode is not Redistribution.BROADCAST:
            found[facts.uid, facts.name] = replace(before, elements=before.elements + facts.elements)
    return list(found.values())


def all_timers(slots: Sequence[FoundStates]) -> list[ReadableTimers]:
    """Return the number and the next time of each operator's timers; domains without timers are left out."""
    found: dict[tuple[str, str], ReadableTimers] = {}
    for facts in (each for slot in slots for each in slot.timers if each.count):
        before = found.get((facts.uid, facts.domain), ReadableTimers(facts.uid, facts.domain, 0, None))
        times = [time for time in (before.next, facts.next) if time is not None]
        joined = replace(before, count=before.count + facts.count, next=min(times, default=None))
        found[facts.uid, facts.domain] = joined
    return list(found.values())


def next_timers(plan: JobPlan, operator: Operator, slots: Sequence[FoundTimers], limit: int) -> NextTimers:
    """Return the next timers over all slots, at most `limit` of each domain, as of the earliest epoch of the slots."""
    assert operator.key is not None
    text = next((each.window_type for each in slots if each.window_type is not None), None)
    of_window = None if text is None else type_from_text(text)
    decode_key, hashed = serializer(operator.key.type).decode_one, key_hasher(operator.key.type)
    decode_window = None if of_window is None else serializer(of_window).decode_one
    groups = plan.key_groups_of(operator.id)

    def decoded() -> Iterator[LiveTimer]:
        for timer in (each for slot in slots for each in slot.timers):
            key = decode_key(timer.key)
            window = None if decode_window is None or timer.window is None else decode_window(timer.window)
            yield LiveTimer(timer.domain, timer.time, key, window, hashed(key) % groups)

    ordered = sorted(decoded(), key=attrgetter("domain", "time"))
    chosen = [timer for _, each in groupby(ordered, attrgetter("domain")) for timer in islice(each, limit)]
    epoch = min((each.epoch for each in slots), default=-1)
    return NextTimers(Epoch(epoch), operator.key.type, of_window, chosen, sum(each.count for each in slots))
