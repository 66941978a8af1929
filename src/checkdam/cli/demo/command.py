"""`checkdam demo`: a word count that loses a slot, then its driver, and still counts correctly."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from checkdam.cli import number_format
from checkdam.cli.demo import demo_processes
from checkdam.cli.demo.child import ChildJob
from checkdam.cli.error_messages import EXIT_FAILED, EXIT_TERMINATED, errors_printed
from checkdam.cli.inspect import look_into, show
from checkdam.cli.options import VERBOSE
from checkdam.cli.tables import console_for_output
from checkdam.errors import JobFailedError, UsageError

_HERE = Path(__file__).parent
_LINES_PER_FILE = 6
_PATIENCE_SECONDS = 180.0
_COMPLETED = r"^checkpoint (\d+) completed: epoch (\d+), .* (\S+)$"
_SHOWN_WORDS = 5


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Keep input, output and checkpoints here.")
@VERBOSE
@click.pass_context
def demo(ctx: click.Context, directory: Path | None, *, verbose: bool) -> None:
    """Count the words of a small text while the job loses first a slot, then its driver, to SIGKILL.

    The counts at the end are compared with a plain count of the same text; exit code 1 if they differ.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # so that the demo cleans up on SIGTERM, too
    console = console_for_output()
    with errors_printed(verbose=verbose), _place(directory) as place:
        is_right = Demo(place, console).play()
    if directory is None:
        console.print("The files of the demo are removed; --dir DIRECTORY keeps them.")
    ctx.exit(0 if is_right else EXIT_FAILED)


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """Return the demo's directory: the user's, which stays, or a temporary one, which is removed with the demo."""
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="checkdam-demo."))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    else:
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f'directory "{directory}" is not empty', hint="Give --dir an empty or a new directory.")
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()


class Demo:
    """The four acts of the demo, in one directory."""

    def __init__(self, place: Path, console: Console) -> None:
        self._console = console
        self._input, self._output, self._checkpoints = place / "input", place / "output", place / "checkpoints"
        self._mark = secrets.token_hex(8)
        self._job: ChildJob | None = None

    def play(self) -> bool:
        """Play the demo and return whether the counts were right. Leaves no process, whatever happens."""
        files = self._lay_out_text()
        try:
            self._count_and_lose_a_slot(third=files // 3)
            self._lose_the_driver(epoch=2 * files // 3)
            path = self._resume()
        finally:
            if self._job is not None:
                self._job.kill()
            left = demo_processes.wait_until_gone(self._mark, 15.0)
            for pid in left:
                demo_processes.kill(pid)
        return self._compare(path) and not self._report_leftovers(left)

    def _lay_out_text(self) -> int:
        lines = [line for line in _text().splitlines() if line]
        self._input.mkdir()
        starts = range(0, len(lines), _LINES_PER_FILE)
        for number, start in enumerate(starts):
            content = "\n".join(lines[start : start + _LINES_PER_FILE])
            (self._input / f"{number:03}.txt").write_text(content + "\n", encoding="utf-8")
        self._say(1, f"{len(lines)} lines about a river in {len(starts)} files; the job reads one file an epoch")
        self._note("and takes a checkpoint after each. Starting Spark …")
        return len(starts)

    def _count_and_lose_a_slot(self, third: int) -> None:
        self._start()
        reached = self._wait_for_epoch(third)
        self._note(f"checkpoint {reached} is complete")
        pids = demo_processes.slots(self._mark) if demo_processes.can_find_processes() else []
        if not pids:
            self._say(2, "this system has no /proc to find slots in, so none is killed")
            return
        demo_processes.kill(pids[0])
        self._say(2, f"[red]kill -9[/] {pids[0]}: one of {len(pids)} slots is gone, and the counts it held in memory")
        job = self._running
        job.wait_for(r"restarting in", seconds=_PATIENCE_SECONDS)
        restored = job.wait_for(r"^restored \S*/(chk-\d+), continuing after epoch (\d+)", seconds=_PATIENCE_SECONDS)
        self._note(f"the job restored {restored[1]} in new slots and continues after epoch {restored[2]}")

    def _lose_the_driver(self, epoch: int) -> None:
        reached = self._wait_for_epoch(epoch)
        self._note(f"checkpoint {reached} is complete")
        driver = self._running
        driver.kill()
        self._say(3, f"[red]kill -9[/] {driver.process.pid}: the driver is gone, and Spark with it")
        left = demo_processes.wait_until_gone(self._mark, 15.0)
        if not self._report_leftovers(left):
            self._note("its slots noticed and ended by themselves")

    def _resume(self) -> str:
        self._say(4, "checkdam run demo_job.py [bold]--resume latest[/]")
        self._start("--resume", "latest")
        job = self._running
        restored = job.wait_for(r"^restored \S*/(chk-\d+), continuing after epoch (\d+)", seconds=_PATIENCE_SECONDS)
        self._note(f"restored {restored[1]}, continues after epoch {restored[2]}")
        job.wait_for(r"^job finished", seconds=_PATIENCE_SECONDS)
        path = job.wait_for(r"^resume with: .* -s (\S+)", seconds=_PATIENCE_SECONDS)[1]
        if (code := job.wait(seconds=_PATIENCE_SECONDS)) != 0:
            raise JobFailedError(f"the demo's job ended with exit code {code}")
        return path

    def _compare(self, path: str) -> bool:
        expected = plain_count()
        updates = read_updates(self._output)
        wrong = {
            word for word in expected.keys() | updates.keys() if updates.get(word) != _counting_up_to(expected[word])
        }
        console = self._console
        console.print()
        for word, count in expected.most_common(_SHOWN_WORDS):
            console.print(f"  {word:>8}  plain count {count:>4}   checkdam {max(updates.get(word, [0])):>4}")
        total = number_format.number(sum(expected.values()))
        if wrong:
            console.print(f"[bold red]✗[/] {len(wrong)} of {len(expected)} counts differ: {', '.join(sorted(wrong))}")
        else:
            console.print(f"[bold green]✓[/] all {len(expected)} counts equal a plain count of the text,")
            console.print(f"  and each of the {total} updates is in the output exactly once.\n")
        console.print(f"The last checkpoint: [bold]checkdam inspect {path}[/]\n", soft_wrap=True)
        show(look_into(path), console)
        return not wrong

    def _start(self, *options: str) -> None:
        self._job = ChildJob(
            [
                *("-p", "2", "--master", "local[2]", *options),
                *("-D", f"execution.checkpointing.dir={self._checkpoints}"),
                *("-D", "execution.checkpointing.interval=0"),
                *("-D", "execution.checkpointing.num-retained=2"),
                *("-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"),
                *(str(_HERE / "demo_job.py"), "--", str(self._input), str(self._output)),
            ],
            self._mark,
        )

    @property
    def _running(self) -> ChildJob:
        assert self._job is not None
        return self._job

    def _wait_for_epoch(self, epoch: int) -> int:
        while True:
            completed = self._running.wait_for(_COMPLETED, seconds=_PATIENCE_SECONDS)
            if int(completed[2]) >= epoch:
                return int(completed[1])

    def _report_leftovers(self, pids: list[int]) -> bool:
        if pids:
            self._console.print(f"[bold red]✗[/] processes left behind: {', '.join(map(str, pids))}")
        return bool(pids)

    def _say(self, act: int, line: str) -> None:
        self._console.print(f"[bold cyan]{act}[/] {line}", soft_wrap=True)

    def _note(self, line: str) -> None:
        self._console.print(f"  [dim]{line}[/]", soft_wrap=True)


def plain_count() -> Counter[str]:
    """Count the words of the text with plain Python."""
    return Counter(word.strip(".,;").lower() for word in _text().split())


def read_updates(output: Path) -> dict[str, list[int]]:
    """Return every count that the sink published, by word, ascending."""
    updates: defaultdict[str, list[int]] = defaultdict(list)
    for file in output.glob("part-*.json"):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            updates[record["f0"]].append(record["f1"])
    return {word: sorted(counts) for word, counts in updates.items()}


def _counting_up_to(count: int) -> list[int]:
    """Return all updates of a running count up to its end: each number once, none lost, none repeated."""
    return list(range(1, count + 1))


def _text() -> str:
    return (_HERE / "river.txt").read_text(encoding="utf-8")
