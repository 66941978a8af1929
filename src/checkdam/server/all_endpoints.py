"""All endpoints of the server, collected from the modules of this room."""

from __future__ import annotations

from collections.abc import Callable

from checkdam.config import Configuration
from checkdam.server.app import openapi
from checkdam.server.app.endpoint import Endpoint
from checkdam.server.catalog.known_jobs import Jobs
from checkdam.server.flink_api import (
    checkpoint_endpoints,
    cluster,
    job_endpoints,
    job_history,
    job_list,
    log_endpoints,
    metrics,
    prometheus,
    rescales,
    triggers,
    unavailable,
    vertices,
)
from checkdam.server.flink_api.operations import Operations
from checkdam.server.page import page_files
from checkdam.server.state_api import live_state_endpoints, snapshot_endpoints


def endpoints(
    known: Jobs,
    operations: Operations,
    configuration: Configuration,
    dispose: Callable[[str], None],
) -> list[Endpoint]:
    """Return every endpoint, including those of the page and of the OpenAPI document."""
    served = [
        *cluster.routes(known, configuration),
        *job_list.routes(known),
        *job_endpoints.routes(known),
        *vertices.routes(known),
        *checkpoint_endpoints.routes(known),
        *triggers.routes(known, operations, configuration, dispose),
        *rescales.routes(known, operations),
        *job_history.routes(known),
        *metrics.routes(known),
        *prometheus.routes(known),
        *log_endpoints.routes(known),
        *live_state_endpoints.routes(known),
        *snapshot_endpoints.routes(known),
        *unavailable.routes(),
        *page_files.routes(),
    ]
    return [*served, *openapi.routes(served)]
