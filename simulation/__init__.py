"""Whole jobs in one thread: the real driver loop, coordinator and slots, in an order that a seed chooses."""
