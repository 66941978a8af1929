"""Gathers what a job tells into records."""
