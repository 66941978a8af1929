"""Finds the server and job that a command addresses: the options common to such commands, and their meaning."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from checkdam.cli.error_messages import errors_printed, say
from checkdam.cli.options import AS_JSON, CONFIG_FILE, SETTINGS, VERBOSE, load_configuration
from checkdam.cli.progress import Progress
from checkdam.cli.tables import print_json
from checkdam.client.rest_client import DEFAULT_TIMEOUT, RestClient
from checkdam.config import REST_ADDRESS, REST_PORT, SAVEPOINT_DIR, Configuration
from checkdam.errors import CheckdamError, RequestRefusedError, ServerUnreachableError, UsageError
from checkdam.processes import Owner
from checkdam.runtime.job_status import JobStatus
from checkdam.server.app.security import rest_token
from checkdam.server.catalog import registry

TOKEN_VARIABLE = "CHECKDAM_REST_TOKEN"

_AMBIGUOUS_SHOWN = 4
_BAD_REQUEST = 400
_NOT_FOUND = 404


@dataclass(frozen=True)
class RemoteJob:
    """A job that a server knows, with its entry of GET /jobs/overview."""

    client: RestClient
    overview: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.overview["jid"])

    @property
    def name(self) -> str:
        return str(self.overview["name"])

    @property
    def status(self) -> JobStatus:
        return JobStatus(self.overview["state"])

    @property
    def is_active(self) -> bool:
        return not self.status.has_ended

    def path(self, *below: str) -> str:
        return "/".join((f"/jobs/{self.id}", *below))


@dataclass(frozen=True)
class Remote:
    """The servers a command may query, and how it prints its result: as text, or only as JSON."""

    configuration: Configuration
    address: str | None = None
    token: str | None = None
    as_json: bool = False
    registry_directory: Path | None = None
    unreachable: list[ServerUnreachableError] = field(default_factory=list)
    patience: timedelta = DEFAULT_TIMEOUT  # for one answer

    def clients(self) -> Sequence[tuple[RestClient, tuple[str, ...]]]:
        """Return the server that -m names; else those running on this machine; else the default address.

        Each comes with the ids of the jobs known to run in its process.
        """
        if self.address is not None:
            return [(self._client(self.address), ())]
        here = registry.servers(self.registry_directory)
        if here:
            return [(self._client(server.url, server.token), server.jobs) for server in here]
        return [(self._client(self._default_address()), ())]

    def jobs(self) -> list[RemoteJob]:
        """Return every job the servers know, once each: from the server it runs on, if that is among them.

        Raises:
            ServerUnreachableError: no server answers. If only some do not, a warning is printed.
            RequestRefusedError: the only server refuses.
        """
        found: dict[str, RemoteJob] = {}
        clients = self.clients()
        for client, own in clients:
            try:
                overviews = _overviews(client)
            except ServerUnreachableError as error:
                self.unreachable.append(error)
                continue
            except RequestRefusedError as error:
                if len(clients) == 1:
                    raise
                say(f"WARNING: {client.url} refuses to list its jobs: {error.message}")
                continue
            for overview in overviews:
                if overview["jid"] not in found or overview["jid"] in own:
                    found[overview["jid"]] = RemoteJob(client, overview)
        if len(self.unreachable) == len(clients):
            raise self._no_server_error()
        for silent in self.unreachable:
            say(f"WARNING: {silent.message}")
        return list(found.values())

    def find(self, job: str) -> RemoteJob:
        """Return the job with this id, name or prefix of an id; a running one takes precedence over an ended one.

        Raises:
            UsageError: it is ambiguous or empty.
            RequestRefusedError: there is no such job.
        """
        if not job:  # a prefix of every id: an unset variable in a script must not select a job
            raise UsageError("JOB must not be empty", hint="Give a job's id, the beginning of its id, or its name.")
        known = self.jobs()
        active = [each for each in known if each.is_active]
        beginning = job.lower()
        for candidates in (
            [each for each in known if each.id == beginning],
            [each for each in active if each.name == job],
            [each for each in active if each.id.startswith(beginning)],
            [each for each in known if each.name == job],
            [each for each in known if each.id.startswith(beginning)],
        ):
            if len(candidates) > 1:
                raise _ambiguous(job, candidates)
            if candidates:
                return candidates[0]
        near = difflib.get_close_matches(job, [each.name for each in known], n=1)
        meant = f'Did you mean "{near[0]}"? ' if near else ""
        error = RequestRefusedError(f'there is no job "{job}"', hint=f'{meant}"checkdam list -a" lists all jobs.')
        error.status = _NOT_FOUND
        raise error

    def process_of(self, job: RemoteJob) -> Owner | None:
        """Return the process that runs the job, if it is one of this user on this machine; of several, the last."""
        here = registry.servers(self.registry_directory)
        return next((server.owner for server in reversed(here) if job.id in server.jobs), None)

    def follow(self, job: RemoteJob, status_path: str) -> dict[str, Any]:
        """Wait for asynchronous work on a job, showing its progress; return Flink's "operation"."""
        with Progress() as progress:

            def show_progress() -> None:
                if progress.is_due():
                    with suppress(CheckdamError):  # the work continues even if this poll fails
                        progress.show(job.client.get(job.path()).get("progress"))

            return job.client.wait(status_path, on_poll=show_progress)

    def trigger_savepoint(
        self, job: RemoteJob, path: str, body: Mapping[str, Any], *, directory: tuple[str, str | None]
    ) -> str:
        """Start an operation that writes a savepoint; `directory` is the target, under the request's name for it."""
        name, place = directory
        try:
            return job.client.trigger(job.path(path), {**body, name: place})
        except RequestRefusedError as error:
            if place is not None or error.status != _BAD_REQUEST:
                raise
            raise UsageError(
                f"no directory is given for the savepoint, and job {job.id} does not set {SAVEPOINT_DIR.key}",
                hint="Give a directory.",
            ) from error

    def status_command(self, trigger: str) -> str:
        """Return the command that asks for the result of a savepoint or stop."""
        at = f" -m {self.address}" if self.address is not None else ""
        return f"checkdam savepoint --status {trigger}{at}"

    def print_text(self, line: str) -> None:
        """Print a line of text, unless JSON is requested."""
        if not self.as_json:
            click.echo(line)

    def print_json(self, result: Any) -> None:
        """Print the result as JSON, if that is requested."""
        if self.as_json:
            print_json(result)

    def _client(self, address: str, token: str | None = None) -> RestClient:
        return RestClient(address, token=self._token(token), timeout=self.patience)

    def _token(self, of_server: str | None) -> str | None:
        """Return the token of a registered server of this machine if there is one, else the user's."""
        return of_server or self.token or rest_token(self.configuration)

    def _default_address(self) -> str:
        return f"{self.configuration.get(REST_ADDRESS) or 'localhost'}:{self.configuration.get(REST_PORT) or 8081}"

    def _no_server_error(self) -> ServerUnreachableError:
        if self.address is not None or len(self.unreachable) > 1:
            return self.unreachable[0]
        return ServerUnreachableError(
            f"no job is running on this machine, and {self.unreachable[0].message}",
            hint="Start a job with checkdam run, or name its server with -m host:port.",
        )


def connection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options below: it gets a `Remote` in place of them, and its errors are printed."""

    @click.option(
        "-m",
        "--jobmanager",
        "address",
        metavar="HOST:PORT",
        help="Address of the job's server. Default: the servers on this machine.",
    )
    @click.option(
        "--token", envvar=TOKEN_VARIABLE, help=f"The server's token (rest.auth.token). Also: ${TOKEN_VARIABLE}."
    )
    @AS_JSON
    @SETTINGS
    @CONFIG_FILE
    @VERBOSE
    @functools.wraps(command)
    def with_remote(
        *arguments: Any,
        address: str | None,
        token: str | None,
        as_json: bool,
        settings: tuple[str, ...],
        file: Path | None,
        verbose: bool,
        **options: Any,
    ) -> None:
        with errors_printed(verbose=verbose, as_json=as_json):
            command(Remote(load_configuration(settings, file), address, token, as_json), *arguments, **options)

    return with_remote


def _overviews(client: RestClient) -> list[dict[str, Any]]:
    try:
        return list(client.get("/jobs/overview")["jobs"])
    except (KeyError, TypeError) as error:
        raise RequestRefusedError(f"{client.url} is not a Checkdam server: its answer lists no jobs") from error


def absolute(directory: str) -> str:
    """Return the absolute path, because the job has its own working directory; a URI stays as it is."""
    return directory if "://" in directory or directory.startswith("file:") else os.path.abspath(directory)


def wait_for_end(job: RemoteJob) -> JobStatus | None:
    """Return how the job ended; None if its driver ended before it could answer.

    A standing server then does not find the job, unless the job has an archive.
    """
    with Progress() as progress:
        while True:
            try:
                status = JobStatus(job.client.get(job.path("status"))["status"])
            except ServerUnreachableError:
                return None
            except RequestRefusedError as error:
                if error.status != _NOT_FOUND:
                    raise
                return None
            if status.has_ended:
                return status
            progress.show(status.lower())
            progress.rest()


def wait_for_process(process: Owner | None) -> None:
    """Wait until the process that ran a job has ended, after which the job can be started again at once."""
    if process is None:
        say("note: the process of the job is not one of this machine: its end is not awaited")
        return
    with Progress() as progress:
        while process.is_alive():
            progress.show("the job's process ends")
            progress.rest()


def _ambiguous(job: str, candidates: Sequence[RemoteJob]) -> CheckdamError:
    shown = ", ".join(f"{each.id} ({each.name}, {each.status})" for each in candidates[:_AMBIGUOUS_SHOWN])
    more = f" and {len(candidates) - _AMBIGUOUS_SHOWN} more" if len(candidates) > _AMBIGUOUS_SHOWN else ""
    return UsageError(f'"{job}" matches {len(candidates)} jobs: {shown}{more}', hint="Give the id of one.")
