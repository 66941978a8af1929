"""Compares the speed of Checkdam with Spark's ways to keep state, and Flink's: `python -m benchmarks` measures all.

`__main__` reads the options. The comparisons: `throughput` (records per second), `kinds` (every kind of state), `state`
and `durable` (checkpoints, restores, memory), `windows`, `flink_java`, `serializers`. Each side runs in its own process
(`sides/`), started by `processes`; `measuring` finds its steady state, `words` creates the input, and `report` the
table.
"""
