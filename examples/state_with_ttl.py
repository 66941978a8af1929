"""State that is forgotten after a second: `checkdam run examples/state_with_ttl.py`.

Ada says something three times, the last time after two seconds of silence. Prints

    ada says hello
    ada says how are you? after hello
    ada says anybody there?

because by then her second text has expired.
"""

import time
from collections.abc import Iterator
from datetime import timedelta

from checkdam import (
    CleanupFullSnapshot,
    CleanupIncrementally,
    CleanupOnCompaction,
    FlatMapFunction,
    RuntimeContext,
    SourceContext,
    SourceFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TtlTime,
    TtlUpdateType,
    TtlVisibility,
    ValueStateDescriptor,
)

TTL = StateTtlConfig(
    timedelta(seconds=1),
    update_type=TtlUpdateType.ON_CREATE_AND_WRITE,  # or ON_READ_AND_WRITE
    visibility=TtlVisibility.NEVER_RETURN_EXPIRED,  # or RETURN_EXPIRED_IF_NOT_CLEANED_UP
    time=TtlTime.PROCESSING_TIME,  # or EVENT_TIME
    cleanup=(CleanupFullSnapshot(), CleanupIncrementally(10, run_for_every_record=True), CleanupOnCompaction(1000)),
)


class Ada(SourceFunction[tuple[str, str]]):
    """Talks, and pauses. An epoch of a source ends after 0.2 s, so the long pause lies between two epochs."""

    def run(self, ctx: SourceContext) -> Iterator[tuple[str, str]]:
        yield "ada", "hello"
        time.sleep(0.3)
        yield "ada", "how are you?"
        time.sleep(2.0)
        yield "ada", "anybody there?"


class LastText(FlatMapFunction[tuple[str, str], str]):
    """Gives each text with the one before it, if that is not too long ago."""

    def open(self, ctx: RuntimeContext) -> None:
        self.text = ctx.get_state(ValueStateDescriptor("text state", str, ttl=TTL))

    def flat_map(self, said: tuple[str, str]) -> Iterator[str]:
        who, text = said
        before = self.text.value()
        self.text.update(text)
        yield f"{who} says {text}" + (f" after {before}" if before else "")


env = StreamExecutionEnvironment.get_execution_environment()
(
    env.add_source(Ada())
    .uid("ada")
    .set_parallelism(1)
    .key_by(lambda said: said[0])
    .flat_map(LastText())
    .uid("last-text")
    .print()
)
env.execute("StateWithTtl")
