"""`checkdam serve`: the page and REST for jobs that have ended, without a running job."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from checkdam.cli.error_messages import errors_printed, say
from checkdam.cli.listed_jobs import check_directory
from checkdam.cli.options import CONFIG_FILE, SETTINGS, VERBOSE, load_configuration
from checkdam.config import CHECKPOINT_DIR, REST_PORT
from checkdam.errors import ConfigError


@click.command()
@click.option("--dir", "directories", metavar="DIRECTORY", multiple=True, help="A checkpoint directory; repeatable.")
@click.option("--port", metavar="N", help="Where to listen; the next free port if it is taken. Default: 8081.")
@SETTINGS
@CONFIG_FILE
@VERBOSE
def serve(
    directories: tuple[str, ...], port: str | None, settings: tuple[str, ...], file: Path | None, *, verbose: bool
) -> None:
    """Serve the web page and REST for the jobs whose checkpoints are in DIRECTORY, until Ctrl-C.

    They show the jobs' history, checkpoints and state; no job runs. The default of --dir is state.checkpoints.dir of
    the settings.

    \b
      checkdam serve --dir data/checkpoints
      checkdam serve --dir s3://bucket/checkpoints --port 9000
    """
    with errors_printed(verbose=verbose):
        given = load_configuration(settings, file, {REST_PORT.key: port})
        if not directories and given.get(CHECKPOINT_DIR) is None:
            raise ConfigError("no checkpoint directory is given", hint="Give --dir, or set state.checkpoints.dir.")
        for directory in directories:
            check_directory(directory)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        from checkdam.cli.job_server import Hosting  # the server is slow to import

        with Hosting(given, directories) as host:
            say(f"web page and REST: {host.url} (Ctrl-C ends)")
            ended.wait()
