"""Client of a job's REST server: queries a running job's state from any Python program."""

from checkdam.client.state_client import StateAnswer, StateClient

__all__ = ["StateAnswer", "StateClient"]
