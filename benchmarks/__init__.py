"""How fast Checkdam is beside Spark's own ways to keep state: `python -m benchmarks` measures both in one run.

`__main__` reads the options. What is held against what: `throughput` (records a second), `kinds` (every kind of state),
`state` and `durable` (checkpoints, restores, memory), `serializers`. Each side runs in a process of its own (`sides/`),
started by `processes`; `measuring` tells its steady state, `words` makes the input, and `report` the table.
"""
