"""The average of each sensor, as a function on columns: `checkdam run examples/exponential_average.py`.

A new value counts a quarter, all values before it the rest. Prints

    ('cellar', 8.0)
    ('roof', 20.0)
    ('cellar', 9.0)
    ('roof', 18.0)
    ('roof', 18.5)

in no particular order of the sensors.
"""

from checkdam import BatchContext, KeyedBatch, KeyedBatchFunction, StreamExecutionEnvironment

READINGS = [("cellar", 8.0), ("roof", 20.0), ("cellar", 12.0), ("roof", 12.0), ("roof", 20.0)]


class Average(KeyedBatchFunction[tuple[str, float]]):
    """Goes through the records of a batch in steps: in each step every sensor has at most one record."""

    def process_batch(self, batch: KeyedBatch, ctx: BatchContext) -> object:
        state = ctx.get_column_state("average", float)
        measured = batch.column("f1")
        averages = state.values.copy()  # one for each sensor of the batch
        is_known = state.exists.copy()
        output = measured.copy()  # one for each record
        for rows in batch.steps():
            sensors = batch.key_index[rows]
            known = is_known[sensors]
            output[rows[known]] = 0.75 * averages[sensors[known]] + 0.25 * measured[rows[known]]
            averages[sensors], is_known[sensors] = output[rows], True
        state.write(averages)
        return batch.records.column("f0"), output


env = StreamExecutionEnvironment.get_execution_environment()
(
    env.from_collection(READINGS, tuple[str, float])
    .key_by(lambda reading: reading[0])
    .process_batch(Average())
    .uid("average")
    .print()
)
env.execute("ExponentialAverage")
