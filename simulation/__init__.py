"""Whole jobs in one thread: the real driver loop, coordinator and slots, in an order chosen by a seed."""
