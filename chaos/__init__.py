"""Real jobs, really killed: what a round does, and how its outcome is judged."""
