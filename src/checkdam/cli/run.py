"""`checkdam run`: runs a job file, on embedded Spark or a cluster, from its start or from a checkpoint."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from checkdam.api.launch import Launch, Resume
from checkdam.checkpoint.settings import JobEnd, restore_mode
from checkdam.cli.error_messages import EXIT_CANCELLED, EXIT_FAILED, EXIT_TERMINATED, errors_printed, say
from checkdam.cli.job_file import run_printing_errors
from checkdam.cli.options import CONFIG_FILE, SETTINGS, SOURCE_POSITION, load_configuration
from checkdam.cli.report import LiveReporter, LogReporter, PlainReporter, StatusReporter
from checkdam.config import (
    ALLOW_REPEATED_OUTPUT,
    DEFAULT_PARALLELISM,
    REST_PORT,
    RESTORE_MODE,
    SPARK_MASTER,
)
from checkdam.errors import JobFileError
from checkdam.runtime.job import Job
from checkdam.runtime.job_control import WatchedJob
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.source_position import parse_source_start

if TYPE_CHECKING:
    from checkdam.cli.job_server import Hosting

SPARK_LOG = "spark.log.level=WARN"
"""The setting of --verbose."""


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-s", "--from-savepoint", "path", metavar="PATH", help="Start from this savepoint or checkpoint (…/chk-4)."
)
@click.option(
    "-cm",
    "--claim-mode",
    "-rm",
    "--restore-mode",
    "claim_mode",
    metavar="MODE",
    help="no_claim (default): the job never changes what -s names; claim: the job owns it, and deletes it when done.",
)
@click.option(
    "--resume",
    type=click.Choice([each.value for each in Resume]),
    help="latest: continue from the job's newest complete checkpoint. auto: the same, or start anew if it has none.",
)
@click.option("-p", "--parallelism", metavar="N", help="Subtasks of each operator. Default: the number of cores.")
@click.option("--master", metavar="URL", help='Spark master. Default: "local[*]", Spark inside this process.')
@SETTINGS
@CONFIG_FILE
@click.option("--port", metavar="N", help="Port of web page and REST; the next free one if it is taken. Default: 8081.")
@click.option("--no-rest", is_flag=True, help="Start no server: no web page, and other commands cannot reach the job.")
@click.option(
    "--take-over",
    is_flag=True,
    help="With --resume or -cm claim: take the job over even from a running process, such as one that hangs.",
)
@click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="Drop the state of operators that the job no longer has."
)
@SOURCE_POSITION
@click.option(
    "--allow-repeated-output",
    is_flag=True,
    help="If the newest checkpoint is damaged, continue from an older one even if output cannot be withdrawn.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show Spark's log, and whole stack traces.")
@click.pass_context
def run(
    ctx: click.Context,
    job: Path,
    arguments: tuple[str, ...],
    path: str | None,
    claim_mode: str | None,
    resume: str | None,
    parallelism: str | None,
    master: str | None,
    settings: tuple[str, ...],
    file: Path | None,
    port: str | None,
    source_positions: tuple[str, ...],
    *,
    no_rest: bool,
    allow_non_restored_state: bool,
    take_over: bool,
    allow_repeated_output: bool,
    verbose: bool,
) -> None:
    """Run the Python program JOB, which builds a job and calls env.execute().

    Output of print() goes to standard output, progress to standard error. Ctrl-C cancels the job; its retention
    decides which checkpoints stay. SIGTERM suspends the job: it takes a last checkpoint, from which --resume continues.
    A second signal ends the process at once. Exit codes: 0 finished, 1 failed, 2 wrong use, 130 cancelled, 143
    suspended. Settings of the program win over -D, -p and --master, which win over the settings file. A running job is
    served on a port of this machine: web page, REST, and the other commands (checkdam list, savepoint, stop …).

    \b
      checkdam run job.py
      checkdam run job.py --resume latest
      checkdam run job.py --resume auto            (under systemd or Kubernetes: continue, or start anew)
      checkdam run job.py -s data/checkpoints/<job>/chk-4 -p 4
      checkdam run job.py -s data/savepoints/savepoint-4fa1c0-9b2d61a7f003 --port 9000
      checkdam run -D execution.checkpointing.interval=10s job.py -- --input data
    """
    if path is not None and resume is not None:
        raise click.UsageError("-s and --resume cannot be combined.")
    if claim_mode is not None and path is None:
        raise click.UsageError("--claim-mode needs -s.")
    if source_positions and resume is None and path is None:
        raise click.UsageError(
            "--source-position needs --resume or -s: a new job reads its sources from the beginning."
        )
    if take_over and resume is None and path is None:
        raise click.UsageError("--take-over needs --resume or -s: a new job has no other owner.")
    overrides = {
        SPARK_MASTER.key: master,
        DEFAULT_PARALLELISM.key: parallelism,
        REST_PORT.key: port,
        RESTORE_MODE.key: claim_mode,
        ALLOW_REPEATED_OUTPUT.key: "true" if allow_repeated_output else None,
    }
    options = {"--master": master, "-p": parallelism, "--config": file, "--port": port}

    def resume_with(checkpoint: str | None, rescaled_to: int | None) -> str:
        how = ["--resume", Resume.LATEST] if checkpoint is None else ["-s", checkpoint]
        return command_with(how, job, settings, {**options, "-p": rescaled_to or parallelism}, arguments)

    reporter = _reporter(resume_with, verbose=verbose)
    host: Hosting | None = None
    try:
        with errors_printed(verbose=verbose):
            launch = Launch(
                load_configuration([*([SPARK_LOG] if verbose else []), *settings], file, overrides),
                restore_path=path,
                resume=Resume(resume) if resume is not None else None,
                allow_non_restored_state=allow_non_restored_state,
                source_positions=dict(map(parse_source_start, source_positions)),
                take_over=take_over,
                listener=reporter,
                log_files=True,
                event_log=lambda write: LogReporter(write, resume=resume_with),
            )
            restore_mode(launch.configuration.get(RESTORE_MODE))  # refuses LEGACY before the program runs
            with nullcontext() if no_rest else _served(launch, reporter, resume_with) as host:
                code = _run(job, arguments, launch, reporter, verbose=verbose)
            ctx.exit(code)
    finally:
        if isinstance(reporter, LiveReporter):
            reporter.close()
        page = host.page_afterwards(reporter.failed_job) if host is not None and reporter.failed_job else None
        if page is not None:
            say(page)


@contextmanager
def _served(
    launch: Launch, reporter: StatusReporter, resume: Callable[[str | None, int | None], str]
) -> Iterator[Hosting]:
    """Serve the jobs of this process from before they start until clients know how they ended."""
    from checkdam.cli.job_server import Hosting  # the server is slow to import

    with Hosting(launch.configuration, resume=resume) as host:

        def watchers(job: Job, monitor: WatchedJob) -> Sequence[JobListener]:
            reporter.serving(host.url, host.urls_for_others)  # not earlier: a faulty program has nothing to show
            return host.watchers(job, monitor)

        launch.host, launch.watchers = host, watchers
        yield host


def _run(job: Path, arguments: Sequence[str], launch: Launch, reporter: StatusReporter, *, verbose: bool) -> int:
    """Run the file to its end and return the exit code. Raise CheckdamError."""
    from checkdam.api.background_jobs import suspend_running_jobs  # loads the runtime, which --help does not need

    if not verbose:
        warnings.filterwarnings("ignore", module=r"(pyspark|py4j)(\.|$)")
    try:
        with _terminated_in_order(reporter):
            try:
                has_run = run_printing_errors(job, arguments, launch, verbose=verbose)
            finally:
                suspend_running_jobs()  # while their server is still up
        if not has_run:
            return EXIT_FAILED
    except KeyboardInterrupt:
        say("interrupted" if reporter.started_any else "cancelled before the job was running")
        return EXIT_CANCELLED
    if not reporter.started_any:
        raise JobFileError(f'job file "{job}" does not call env.execute()', hint="Call it at the end.")
    cancelled = any(result.end is JobEnd.CANCELLED for result in launch.results)
    return EXIT_CANCELLED if cancelled else 0


@contextmanager
def _terminated_in_order(reporter: StatusReporter) -> Iterator[None]:
    """Let SIGTERM end the program while none of its jobs runs; a running job is suspended by its environment."""

    def on_signal(number: int, frame: object) -> None:
        if not reporter.started_any:
            say("terminated before the job was running")
        raise SystemExit(EXIT_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def command_with(
    how: Sequence[str],
    job: Path,
    settings: Sequence[str],
    options: Mapping[str, object],
    arguments: Sequence[str],
) -> str:
    """Return the command that runs the job again, resumed like this."""
    words = ["checkdam", "run"]
    words += [word for setting in settings for word in ("-D", setting)]
    words += [word for option, value in options.items() if value is not None for word in (option, str(value))]
    words += [str(job), *how]
    words += ["--", *arguments] if arguments else []
    return shlex.join(words)


def _reporter(resume: Callable[[str | None, int | None], str], *, verbose: bool) -> StatusReporter:
    if sys.stderr.isatty() and not verbose and os.environ.get("TERM") != "dumb":
        return LiveReporter(Console(stderr=True), resume=resume)
    return PlainReporter(resume=resume)
