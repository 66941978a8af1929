"""State files of every format: those in `data/v1` and `data/v2` were written by it, and later versions must read them.

Never write the files anew. A change of the format adds files of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkdam.backends import HashMapStateBackend, KeyedStateStore, StoreOwner
from checkdam.backends.snapshot_contents import read_entries
from checkdam.backends.state_file import StateInfo
from checkdam.errors import StateNotRestorableError
from checkdam.ids import Attempt, OperatorUid, SubtaskIndex
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.snapshot_handles import KeyedStateHandle, StateFile
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.ttl import StateTtlConfig, TtlTime
from checkdam.testing import MemoryStorage
from checkdam.types.type_info import type_info

DATA = Path(__file__).parent / "data"
FILES = ("shared/base", "shared/delta")
OWNER = StoreOwner(OperatorUid("visits"), SubtaskIndex(0), Attempt("a1"), KeyGroupRange(0, 127), 128, type_info(str))


@dataclass
class Visit:
    page: str
    seen: list[int]


@dataclass
class VisitToday:
    seen: list[int]
    page: str
    tags: list[str] = field(default_factory=list)


def restore(version: str) -> tuple[KeyedStateStore, KeyedStateHandle, MemoryStorage]:
    storage = MemoryStorage()
    for name in FILES:
        storage.write(name, (DATA / version / name).read_bytes())
    files = tuple(StateFile(name, len(storage.read(name))) for name in FILES)
    handle = KeyedStateHandle(KeyGroupRange(0, 127), files)
    return HashMapStateBackend().open(OWNER, [handle], storage, claim=True), handle, storage


def value_state(name: str, of: Any, **more: Any) -> StateSpec:
    return StateSpec(name, StateKind.VALUE, type_info(of), **more)


COUNTS = {f"user-{i}": i for i in range(40)} | {"user-1": 100}
del COUNTS["user-2"]
VISITS = {f"user-{i}": Visit(f"/{i}", [i]) for i in range(40) if i != 2}


@pytest.mark.parametrize("version", [1, 2])
def test_values_are_read(version: int) -> None:
    store, _, storage = restore(f"v{version}")

    assert dict(store.cells(value_state("count", int)).all()) == COUNTS
    assert dict(store.cells(value_state("visit", Visit)).all()) == VISITS
    assert {struct.unpack_from(">I", storage.read(name), 8) for name in FILES} == {(version,)}


@pytest.mark.parametrize("version", [1, 2])
def test_values_migrate(version: int) -> None:
    store, _, _ = restore(f"v{version}")

    found = dict(store.cells(value_state("visit", VisitToday)).all())

    assert found == {key: VisitToday(visit.seen, visit.page) for key, visit in VISITS.items()}


def test_maps_and_namespaces_of_format_2_are_read() -> None:
    store, _, _ = restore("v2")

    pages = store.maps(StateSpec("pages", StateKind.MAP, type_info(int), type_info(str)))
    timers = store.maps(
        StateSpec("_timers/event", StateKind.TIMER, type_info(bool), type_info(int), namespace=type_info(str))
    )

    expected = {(f"user-{i}", f"/{page}"): i * page for i in range(10) for page in range(3)} | {("user-1", "/new"): 7}
    del expected["user-2", "/1"]
    assert dict(pages.all()) == expected
    assert dict(timers.all()) == {("user-1", "window", 1000): True, ("user-1", "", 2000): True}


def test_state_that_expires_of_format_2_is_read_though_the_file_does_not_tell_by_what_time_and_when() -> None:
    of, hour = tuple[int, int], timedelta(hours=1)
    by_clock = value_state("fresh", of, ttl=StateTtlConfig(hour))
    by_event_time = value_state("fresh", of, ttl=StateTtlConfig(hour, time=TtlTime.EVENT_TIME))

    assert dict(restore("v2")[0].cells(by_clock, lambda stored: stored).all())
    with pytest.raises(StateNotRestorableError, match="processing time"):
        restore("v2")[0].cells(by_event_time)


def test_a_file_of_format_2_tells_what_its_states_are() -> None:
    _, handle, storage = restore("v2")

    states = [info for info, _ in read_entries(handle, storage, OWNER.key_groups, Path)]

    assert states[1:] == [
        StateInfo("visit", "value", '{"dataclass":"Visit","fields":[["page","str"],["seen",{"list":"int"}]]}'),
        StateInfo("pages", "map", '"int"', '"str"'),
        StateInfo("_timers/event", "timer", '"bool"', '"int"', '"str"'),
        StateInfo("fresh", "value", '{"tuple":["int","int"]}', ttl=True),
    ]
