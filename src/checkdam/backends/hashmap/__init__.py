"""Keyed state as Python objects in dicts: the fastest backend, bounded by memory."""
