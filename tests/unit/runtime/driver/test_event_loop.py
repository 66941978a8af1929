"""The event loop: order, time, and what goes wrong in a handler."""

from __future__ import annotations

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


def test_a_wait_ends_with_its_time_and_a_cancelled_timer_never_comes() -> None:
    loop, fired = EventLoop(), list[str]()
    loop.after(0.0, lambda: fired.append("kept"))
    loop.after(0.0, lambda: fired.append("cancelled")).cancel()

    assert not loop.run(lambda: False, 0.05)
    assert fired == ["kept"]


def test_what_a_handler_raises_is_told_and_the_loop_goes_on() -> None:
    loop, failures, handled = EventLoop(), list[BaseException](), list[int]()
    loop.failed = failures.append

    loop.post(lambda: 1 / 0)
    loop.post(lambda: handled.append(1))

    assert loop.run(lambda: bool(handled), 60)
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_a_closed_loop_handles_what_was_posted_and_refuses_the_rest() -> None:
    loop, handled = EventLoop(), list[int]()
    loop.post(lambda: handled.append(1))

    loop.close()

    assert handled == [1]
    assert not loop.post(lambda: handled.append(2))
