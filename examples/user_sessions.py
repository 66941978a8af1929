"""Sessions of users, which end after half an hour without a click: `checkdam run examples/user_sessions.py`.

Prints the user, the first minute, the length in minutes and the clicks of each session, in any order:

    ('ada', 0, 35, 3)
    ('bob', 10, 0, 1)
    ('ada', 90, 5, 2)

Ada's clicks at 0 and 35 are further apart than half an hour; the one at 20, which comes last, makes both one session.
"""

from datetime import timedelta
from typing import NamedTuple

from checkdam import EventTimeSessionWindows, StreamExecutionEnvironment, WatermarkStrategy

MINUTE = 60_000  # milliseconds


class Session(NamedTuple):
    """Clicks of a user; one click is a session of its own until it is combined with others."""

    user: str
    first: int  # minutes
    last: int
    clicks: int


def together(one: Session, other: Session) -> Session:
    return Session(one.user, min(one.first, other.first), max(one.last, other.last), one.clicks + other.clicks)


env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ada", 0), ("bob", 10), ("ada", 35), ("ada", 90), ("ada", 95), ("ada", 20)])
(
    clicks.map(lambda click: Session(click[0], click[1], click[1], 1), output_type=Session)
    .assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(hours=2), lambda click: click.first * MINUTE)
    )
    .key_by(lambda click: click.user)
    .window(EventTimeSessionWindows(timedelta(minutes=30)))
    .reduce(together)
    .uid("sessions")
    .map(
        lambda session: (session.user, session.first, session.last - session.first, session.clicks),
        output_type=tuple[str, int, int, int],
    )
    .print()
)
env.execute("UserSessions")
