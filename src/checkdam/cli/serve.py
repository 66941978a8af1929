"""`checkdam serve`: one page and REST for all jobs of this user, running and ended."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from checkdam.cli.error_messages import errors_printed, say
from checkdam.cli.listed_jobs import check_directory
from checkdam.cli.options import CONFIG_FILE, SETTINGS, VERBOSE, load_configuration
from checkdam.config import REST_AUTH_TOKEN_FILE, REST_PORT

if TYPE_CHECKING:
    from checkdam.cli.job_server import Hosting


_LOOK_SECONDS = 1.0


@click.command()
@click.option(
    "--dir",
    "directories",
    metavar="DIRECTORY",
    multiple=True,
    help="Also show the jobs whose checkpoints are in this directory; repeatable. Default: state.checkpoints.dir.",
)
@click.option("--port", metavar="N", help="Where to listen; the next free port if it is taken. Default: 8081.")
@SETTINGS
@CONFIG_FILE
@VERBOSE
def serve(
    directories: tuple[str, ...], port: str | None, settings: tuple[str, ...], file: Path | None, *, verbose: bool
) -> None:
    """Serve the web page and REST for all jobs of this user on this machine, running and ended, until Ctrl-C.

    Running jobs are found automatically, also those that start later; buttons, live state and REST work as on the
    job's own server. When a job has ended, its history, checkpoints and state stay.

    \b
      checkdam serve
      checkdam serve --dir data/checkpoints
      checkdam serve --dir s3://bucket/checkpoints --port 9000
    """
    with errors_printed(verbose=verbose):
        given = load_configuration(settings, file, {REST_PORT.key: port})
        for directory in directories:
            check_directory(directory)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        from checkdam.cli.job_server import Hosting  # the server is slow to import

        with Hosting(given, directories, is_standing=True) as host:
            say(f"web page and REST: {', '.join([host.url, *host.urls_for_others])} (Ctrl-C ends)")
            find_jobs(host, ended)


def find_jobs(host: Hosting, ended: threading.Event) -> None:
    """Look for running jobs until the server ends."""
    told: set[str] = set()
    while True:
        for server in host.find_jobs():
            if server.url not in told:
                told.add(server.url)
                say(
                    f"note: the jobs at {server.url} are not shown: they need a token, and this server has none. "
                    f"Set {REST_AUTH_TOKEN_FILE.key}."
                )
        if ended.wait(_LOOK_SECONDS):
            return
