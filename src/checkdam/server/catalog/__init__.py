"""The jobs that a server knows: running, archived, and those found by their checkpoints."""
