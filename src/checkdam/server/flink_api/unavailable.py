"""Endpoints of Flink that a Python driver cannot serve: answered with a reason, in Flink's error form."""

from __future__ import annotations

from checkdam.server.app.endpoint import ApiCall, Endpoint, Handler
from checkdam.server.app.http_errors import RestError

_JARS = "Jars are not run here: start a job with `checkdam run`."
_SUBMIT = "A compiled job graph is not run here: start a job with `checkdam run`."
_PROFILER = "Profiling is not available here."
_CLUSTER = "There is no cluster to shut down: each job ends with its driver; cancel it, or stop it with a savepoint."
_COORDINATOR = "Operator coordinators are Flink's own; there are none here."

_PATHS: tuple[tuple[int, str, str, str], ...] = (
    (404, "GET", "/jars", _JARS),
    (404, "POST", "/jars/upload", _JARS),
    (404, "DELETE", "/jars/{jarid}", _JARS),
    (404, "GET", "/jars/{jarid}/plan", _JARS),
    (404, "POST", "/jars/{jarid}/plan", _JARS),
    (404, "POST", "/jars/{jarid}/run", _JARS),
    (404, "POST", "/jars/{jarid}/run-application", _JARS),
    (405, "POST", "/jobs", _SUBMIT),
    (405, "DELETE", "/cluster", _CLUSTER),
    (404, "GET", "/jobmanager/profiler", _PROFILER),
    (404, "POST", "/jobmanager/profiler", _PROFILER),
    (404, "GET", "/jobmanager/profiler/{filename}", _PROFILER),
    (404, "GET", "/taskmanagers/{taskmanagerid}/profiler", _PROFILER),
    (404, "POST", "/taskmanagers/{taskmanagerid}/profiler", _PROFILER),
    (404, "GET", "/taskmanagers/{taskmanagerid}/profiler/{filename}", _PROFILER),
    (404, "POST", "/jobs/{jobid}/coordinators/{operatoruid}", _COORDINATOR),
)


def _refuse(status: int, reason: str) -> Handler:
    def refuse(_: ApiCall) -> None:
        raise RestError(status, reason)

    return refuse


def routes() -> list[Endpoint]:
    return [
        Endpoint(method, path, _refuse(status, reason), reason, is_documented=False, tag="unavailable")
        for status, method, path, reason in _PATHS
    ]
