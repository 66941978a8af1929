"""Opens checkpoints and savepoints with no job running."""
