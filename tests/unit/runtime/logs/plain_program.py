"""A program as it is before anybody has set up logging, with a terminal."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from checkdam.runtime.logs import process_logs


@contextmanager
def plain_program() -> Iterator[io.StringIO]:
    """Yield the terminal. Entered in the test itself: pytest has handlers and streams of its own there."""
    root, terminal = logging.getLogger(), io.StringIO()
    handlers, root.handlers = root.handlers, []
    level = root.level
    root.setLevel(logging.WARNING)
    echoes = dict(process_logs._echoes)
    process_logs._echoes.clear()
    try:
        with redirect_stdout(terminal), redirect_stderr(terminal), warnings.catch_warnings():
            warnings.simplefilter("always")
            yield terminal
    finally:
        process_logs._echoes.clear()
        process_logs._echoes.update(echoes)
        root.handlers = handlers
        root.setLevel(level)
