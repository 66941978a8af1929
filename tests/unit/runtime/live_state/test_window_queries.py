"""Window state of a running job: all windows of a key, one of them, and pages of keys and windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.support.windowed_jobs import BACKENDS, EPOCHS, UID, WindowedJob

from checkdam import TimeWindow
from checkdam.backends import KeyedStateBackend
from checkdam.errors import StateAccessError
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.testing.gate import Gate

T = TypeVar("T")
FIRST, SECOND = TimeWindow(0, 60_000), TimeWindow(60_000, 120_000)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    return BACKENDS[request.param]


def asked(backend: KeyedStateBackend, look: Callable[[LiveState], T]) -> T:
    """Look at the state of a job after its last epoch, before its input ends."""
    gate = Gate()
    job = WindowedJob(backend=backend).job(until=gate)
    job.start()
    job.heard.wait_for_epoch(len(EPOCHS))
    try:
        return look(LiveState(job.control.live_slots))  # type: ignore[attr-defined]  # it is the master
    finally:
        gate.open()
        job.join()


def test_a_key_is_answered_with_all_its_windows(backend: KeyedStateBackend) -> None:
    answers = asked(backend, lambda live: live.get(UID, "window-contents", ["ada", "eve", "bob"]))

    assert [each.value for each in answers] == [
        {FIRST: ("ada", 13, 5_000), SECOND: ("ada", 2, 61_000)},
        None,
        {FIRST: ("bob", 1, 20_000), SECOND: ("bob", 3, 62_000)},
    ]
    assert [each.found for each in answers] == [True, False, True]
    assert list(answers[0].value) == [FIRST, SECOND]


def test_one_window_of_a_key_can_be_asked_for(backend: KeyedStateBackend) -> None:
    def look(live: LiveState) -> list[Any]:
        windows = (SECOND, TimeWindow(0, 1))
        return [live.get(UID, "window-contents", ["ada"], window=window)[0].value for window in windows]

    assert asked(backend, look) == [("ada", 2, 61_000), None]


def test_a_page_has_keys_and_windows(backend: KeyedStateBackend) -> None:
    def look(live: LiveState) -> dict[Any, Any]:
        found, cursor = {}, None
        while True:
            page = live.page(UID, "window-contents", cursor, 1)
            found.update(dict(page.entries))
            cursor = page.cursor
            if cursor is None:
                return found

    assert {holder: value[1] for holder, value in asked(backend, look).items()} == {
        ("ada", FIRST): 13,
        ("ada", SECOND): 2,
        ("bob", FIRST): 1,
        ("bob", SECOND): 3,
    }


def test_states_tell_the_type_of_their_windows(backend: KeyedStateBackend) -> None:
    [state] = asked(backend, lambda live: live.states())

    assert state.window_type is not None
    assert (state.name, state.window_type.name) == ("window-contents", "TimeWindow")


@pytest.mark.parametrize(
    ("keys", "window", "words"),
    [(["ada"], "noon", "is no window"), ([("ada", FIRST)], None, "is no key"), ([5], FIRST, "is no key")],
)
def test_what_is_no_key_or_no_window_is_refused(keys: list[Any], window: Any, words: str) -> None:
    with pytest.raises(StateAccessError, match=words):
        asked(BACKENDS["hashmap"], lambda live: live.get(UID, "window-contents", keys, window=window))
