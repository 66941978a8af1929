"""The driver's side of a running job: attempts, checkpoints, requests, restores."""
