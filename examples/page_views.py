"""A dashboard of page views per minute, with late data: `checkdam run examples/page_views.py`.

Views may come five seconds out of order. A minute is counted when they have come that far, and counted again with each
view that is up to a minute late; later ones are counted apart. Prints, for each page and minute, its views so far:

    12:00 /home 2
    12:00 /shop 1
    12:00 /home 3
    12:01 /home 1
    12:02 /shop 1
    too late: /home at 11:57
"""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from checkdam import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    SourceContext,
    SourceFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowContext,
)


class View(NamedTuple):
    page: str
    at: int  # milliseconds since midnight, or since any other time


TOO_LATE = OutputTag("too late", View)


def clock(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000


def minute(at: int) -> str:
    return f"{at // 3_600_000:02}:{at // 60_000 % 60:02}"


class Views(SourceFunction[View]):
    """Gives views, and pauses. An epoch of a source ends after 0.2 s, so the pause lies between two epochs."""

    def run(self, ctx: SourceContext) -> Iterator[View]:
        yield View("/home", clock("12:00:05"))
        yield View("/shop", clock("12:00:31"))
        yield View("/home", clock("12:00:29"))
        yield View("/home", clock("12:01:10"))  # with this, 12:00 is complete at the end of the epoch
        time.sleep(1.0)
        yield View("/home", clock("12:00:58"))
        yield View("/home", clock("11:57:40"))
        yield View("/shop", clock("12:02:00"))


class Count(AggregateFunction[View, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, view: View, count: int) -> int:
        return count + 1

    def get_result(self, count: int) -> int:
        return count

    def merge(self, one: int, other: int) -> int:
        return one + other


class Row(ProcessWindowFunction[str, int, str, TimeWindow]):
    """Makes a row of the dashboard from the count of a page in a minute."""

    def process(self, page: str, ctx: WindowContext[TimeWindow], counts: Sequence[int]) -> Iterator[str]:
        yield f"{minute(ctx.window.start)} {page} {counts[0]}"


env = StreamExecutionEnvironment.get_execution_environment()
views = env.add_source(Views()).uid("views").set_parallelism(1)
rows = (
    views.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5), lambda view: view.at)
    )
    .key_by(lambda view: view.page)
    .window(TumblingEventTimeWindows(timedelta(minutes=1)))
    .allowed_lateness(timedelta(minutes=1))
    .side_output_late_data(TOO_LATE)
    .aggregate(Count(), Row())
    .uid("views-per-minute")
)
rows.print()
rows.get_side_output(TOO_LATE).map(lambda view: f"too late: {view.page} at {minute(view.at)}", output_type=str).print()
env.execute("PageViews")
