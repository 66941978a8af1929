"""How fast Checkdam is beside Spark's own ways to keep state: `python -m benchmarks` measures both in one run.

`__main__` reads the options; `comparisons` says what is held against what; each side runs in a process of its own
(`sides/`), started by `processes`; `words` makes the input, and `report` the table.
"""
