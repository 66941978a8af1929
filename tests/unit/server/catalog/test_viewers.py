"""A server that ends waits for pages that show a job, until they know how it ended, and no longer."""

from __future__ import annotations

import threading

from tests.unit.server.made_jobs import RECORD, with_status

from checkdam.runtime.job_status import JobStatus
from checkdam.server.catalog.viewers import MOST_VIEWERS, RECENT, Viewers

ENDED = with_status(JobStatus.CANCELED)


def test_nobody_is_waited_for_if_nobody_looks() -> None:
    assert Viewers().wait_until_told(0)


def test_every_viewer_is_waited_for_until_it_has_seen_the_end() -> None:
    viewers = Viewers()
    viewers.seen("one", RECORD)
    viewers.seen("other", RECORD)
    viewers.seen("one", ENDED)
    is_waiting = not viewers.wait_until_told(0)
    told = threading.Thread(target=lambda: viewers.seen("other", ENDED))
    told.start()

    assert is_waiting
    assert viewers.wait_until_told(10)
    told.join()


def test_a_viewer_that_left_is_not_waited_for() -> None:
    now = [0.0]
    viewers = Viewers(monotonic=lambda: now[0])
    viewers.seen("one", RECORD)

    now[0] = RECENT + 1

    assert viewers.wait_until_told(0)


def test_the_number_of_viewers_is_bounded() -> None:
    viewers = Viewers()
    for number in range(MOST_VIEWERS + 1):
        viewers.seen(str(number), RECORD)
    for number in range(1, MOST_VIEWERS + 1):
        viewers.seen(str(number), ENDED)

    assert viewers.wait_until_told(0)
