"""Slots that tests serve in their own process."""

from __future__ import annotations

from typing import Final

import pyarrow.flight as flight

ANY_PORT: Final = "grpc+tcp://127.0.0.1:0"
"""Where such a slot listens. Not on a Unix socket: gRPC may remove the socket of a new server in the moment in which
another server of the process ends, since both can have the same file descriptor.
"""


def location_of(server: flight.FlightServerBase) -> str:
    """Return the address of a server that listens on any port."""
    return f"grpc+tcp://127.0.0.1:{server.port}"
