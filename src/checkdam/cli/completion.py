"""`checkdam completion`: completes verbs, options, jobs and directories in a shell."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_CHECKDAM_COMPLETE"
_PATIENCE = timedelta(seconds=1)  # for the answer of one server: somebody waits at the prompt


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes verbs, options and jobs in SHELL: bash, zsh or fish.

    Jobs are completed by their names and ids; those of this machine are found without -m.

    \b
      eval "$(checkdam completion bash)"       in ~/.bashrc
      eval "$(checkdam completion zsh)"        in ~/.zshrc, after compinit
      checkdam completion fish > ~/.config/fish/completions/checkdam.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(ctx.find_root().command, {}, "checkdam", _VARIABLE)
    click.echo(script.source_template % script.source_vars())


def complete_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the jobs that a word can become: by name where that is one word and unique, and by id."""
    jobs = [job for job in _overviews(ctx) if _is_listed(ctx, job)]
    names = Counter(job["name"] for job in jobs)
    found = []
    for job in jobs:
        name, job_id, status = str(job["name"]), str(job["jid"]), str(job["state"])
        has_own_name = names[name] == 1 and shlex.quote(name) == name
        if has_own_name and name.startswith(incomplete):
            found.append(CompletionItem(name, help=f"{job_id}, {status}"))
        elif job_id.startswith(incomplete.lower()) and (incomplete or not has_own_name):
            found.append(CompletionItem(job_id, help=f"{name}, {status}"))
    return found


def complete_directories(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a directory."""
    return [CompletionItem(incomplete, type="dir")]


def _is_listed(ctx: click.Context, job: Any) -> bool:
    """Return whether a job can be meant: ended ones only where they can be asked for."""
    from checkdam.runtime.job_status import JobStatus

    return ctx.info_name in ("list", "config") or not JobStatus(job["state"]).has_ended


def _overviews(ctx: click.Context) -> Iterator[Any]:
    """Iterate over the jobs of the servers, each once; a server that does not answer at once has none."""
    from checkdam.cli.remote import Remote
    from checkdam.config import Configuration
    from checkdam.errors import CheckdamError

    seen: set[str] = set()
    remote = Remote(Configuration(), ctx.params.get("address"), ctx.params.get("token"), patience=_PATIENCE)
    with suppress(CheckdamError):  # -m is not an address
        for client, _ in remote.clients():
            with suppress(CheckdamError, KeyError, TypeError), closing(client.connection()) as connection:
                for job in client.ask(connection, "GET", "/jobs/overview")["jobs"]:
                    if job["jid"] not in seen:
                        seen.add(job["jid"])
                        yield job
