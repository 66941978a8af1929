"""How the driver describes a state to clients that ask its slots themselves."""

from __future__ import annotations

import msgspec


class StateSlots(msgspec.Struct, frozen=True, rename="kebab"):
    """The types of a state, and the slots that hold it.

    `slots` has their addresses by subtask, and `token` only allows questions to them. It is None if the slots cannot
    be asked without the driver.
    """

    attempt: str
    key_type: str
    kind: str
    type: str
    map_key_type: str | None
    window_type: str | None
    ttl: bool
    parallelism: int
    max_parallelism: int
    slots: list[str]
    token: str | None
