"""The average of every two numbers of a key, kept in value state: `checkdam run examples/count_window_average.py`.

Prints (1, 4) and (1, 5): the averages of 3 and 5, and of 7 and 4. The last number, 2, waits for another.
"""

from collections.abc import Iterator

from checkdam import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment, ValueStateDescriptor


class CountWindowAverage(FlatMapFunction[tuple[int, int], tuple[int, int]]):
    """Counts and sums the numbers of a key; gives their average, and begins anew, when there are two."""

    def open(self, ctx: RuntimeContext) -> None:
        self.sum = ctx.get_state(ValueStateDescriptor("average", tuple[int, int], default=(0, 0)))

    def flat_map(self, pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
        count, total = self.sum.value()
        count, total = count + 1, total + pair[1]
        if count >= 2:
            yield pair[0], total // count
            self.sum.clear()
        else:
            self.sum.update((count, total))


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]).key_by(lambda p: p[0]).flat_map(CountWindowAverage()).uid(
    "average"
).print()
env.execute("CountWindowAverage")
