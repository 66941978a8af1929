"""Windows in a slot: their contents, triggers and timers, kept under key and window."""
