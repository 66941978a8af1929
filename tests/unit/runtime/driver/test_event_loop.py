"""The event loop: order, time, and what goes wrong in a handler."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from checkdam.runtime.driver.event_loop import EventLoop, Lane

SERIAL = Lane("one after another")
BESIDE = Lane("side by side", threads=2)


def test_outcomes_come_back_as_events_in_the_thread_of_the_loop() -> None:
    loop, seen = EventLoop(), list[tuple[object, bool]]()
    here = threading.get_ident()

    def then(done: Future[bool]) -> None:
        seen.append((done.result(), threading.get_ident() == here))

    loop.start(SERIAL, lambda: threading.get_ident() == here, then)

    assert loop.run(lambda: bool(seen), 60)
    assert seen == [(False, True)]
    assert loop.is_idle(SERIAL)


def test_a_lane_of_one_thread_keeps_the_order_and_others_do_not_wait() -> None:
    loop, go_on, order = EventLoop(), threading.Event(), list[str]()
    loop.start(SERIAL, lambda: go_on.wait(60), lambda _: order.append("first"))
    loop.start(SERIAL, lambda: None, lambda _: order.append("second"))
    loop.start(BESIDE, go_on.set, lambda _: order.append("beside"))

    assert loop.run(lambda: len(order) == 3, 60)
    assert order.index("first") < order.index("second")


def test_a_wait_ends_with_its_time() -> None:
    loop, fired = EventLoop(), list[str]()
    loop.after(0.0, lambda: fired.append("fired"))

    assert not loop.run(lambda: False, 0.05)
    assert fired == ["fired"]


def test_a_stream_of_events_delays_no_timer() -> None:
    loop, fired = EventLoop(), list[bool]()
    loop.after(0.0, lambda: fired.append(True))

    def next_event() -> None:
        loop.post(next_event)

    next_event()

    assert loop.run(lambda: bool(fired), 60)


def test_what_a_handler_raises_is_told_and_the_loop_goes_on() -> None:
    loop, failures, handled = EventLoop(), list[BaseException](), list[int]()
    loop.failed = failures.append

    loop.post(lambda: 1 / 0)
    loop.post(lambda: handled.append(1))

    assert loop.run(lambda: bool(handled), 60)
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_work_that_moves_is_named_before_work_that_stands_still() -> None:
    loop, go_on, begun = EventLoop(), threading.Event(), threading.Barrier(2)

    def work() -> None:
        begun.wait(60)
        go_on.wait(60)

    loop.start(SERIAL, work, lambda _: None)
    begun.wait(60)
    while (stall := loop.stall(SERIAL, BESIDE)) is None or stall.seconds == 0.0:
        pass
    loop.start(BESIDE, work, lambda _: None)
    begun.wait(60)

    moving = loop.stall(SERIAL, BESIDE)

    assert moving is not None
    assert (moving.work, moving.seconds) == (BESIDE.name, 0.0)
    go_on.set()
    loop.close(SERIAL, BESIDE)


def test_a_closed_loop_handles_what_was_posted_and_refuses_the_rest() -> None:
    loop, handled = EventLoop(), list[int]()
    loop.post(lambda: handled.append(1))

    loop.close()

    assert handled == [1]
    assert not loop.post(lambda: handled.append(2))
    assert not loop.start(SERIAL, lambda: handled.append(2), lambda _: None)


def test_a_loop_closes_only_when_the_work_that_its_last_events_begin_is_done() -> None:
    loop, handled = EventLoop(), list[str]()
    loop.post(lambda: loop.start(SERIAL, lambda: None, lambda _: handled.append("outcome")))

    loop.close(SERIAL)

    assert handled == ["outcome"]


def test_work_that_outlasts_the_loop_reports_in_its_own_thread() -> None:
    loop, go_on, outcomes = EventLoop(), threading.Event(), queue.SimpleQueue[str]()

    def work() -> str:
        assert go_on.wait(60)
        return "late"

    loop.start(SERIAL, work, lambda _: outcomes.put("event"), lambda done: outcomes.put(done.result()))
    loop.close()
    go_on.set()

    assert outcomes.get(timeout=60) == "late"
