"""The other side of a job's REST server: ask a running job for its state from any Python program."""

from checkdam.client.state_client import StateAnswer, StateClient

__all__ = ["StateAnswer", "StateClient"]
