"""Queries of a running job's state, from the driver to the slots and back."""
