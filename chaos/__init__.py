"""Chaos rounds: real jobs whose processes are killed, and the checks of the outcome."""
