"""The endpoints for state: of a running job, and of checkpoints and savepoints."""
