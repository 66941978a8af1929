"""Questions about the state of a running job, from the driver to the slots and back."""
