"""The sides of the comparisons, each run as `python -m benchmarks.sides NAME ARGUMENTS RESULT`."""
