"""Everything the server answers, joined from the modules of this room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkdam.config import Configuration
from checkdam.rest import (
    checkpoints,
    cluster,
    history,
    job_list,
    jobs,
    measures,
    openapi,
    plans,
    prometheus,
    rescales,
    snapshots,
    state,
    taskmanagers,
    triggers,
    unavailable,
    vertices,
)
from checkdam.rest.endpoint import Endpoint
from checkdam.rest.known_jobs import Jobs
from checkdam.rest.operations import Operations


def endpoints(
    known: Jobs,
    operations: Operations,
    configuration: Configuration,
    dispose: Callable[[str], None],
    extra: Sequence[Endpoint] = (),
) -> list[Endpoint]:
    """All of them, with those of rooms above this one (`extra`), and the description of all."""
    served = [
        *cluster.routes(known, configuration),
        *taskmanagers.routes(known),
        *job_list.routes(known),
        *jobs.routes(known),
        *plans.routes(known),
        *vertices.routes(known),
        *checkpoints.routes(known),
        *triggers.routes(known, operations, configuration, dispose),
        *rescales.routes(known, operations),
        *history.routes(known),
        *measures.routes(known),
        *prometheus.routes(known),
        *state.routes(known),
        *snapshots.routes(known),
        *unavailable.routes(),
        *extra,
    ]
    return [*served, *openapi.routes(served)]
