"""Windows as users describe them: assigners, triggers, evictors and window functions."""
