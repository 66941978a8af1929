"""Collects a job's events into records."""
