"""An event loop in a thread of its own, which runs as long as its operator."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from types import CoroutineType, FrameType
from typing import Any, Final

MakeLoop = Callable[[], asyncio.AbstractEventLoop]

CANCEL_SECONDS: Final = 1.0
"""How long a cancelled task may take to end, before it is abandoned."""

_BEGIN_SECONDS: Final = 1.0
"""How long the loop may be inside a callback when it is to end, before the thread is abandoned."""


class EventLoopThread:
    """Runs an event loop until `end`. Clients that a function has opened are served between epochs as well."""

    def __init__(self, name: str, make_loop: MakeLoop, on_end: Callable[[BaseException | None], None]) -> None:
        """Start the loop. `on_end` is called in its thread when it has ended, with what it raised: a sys.exit()."""
        self.loop = make_loop()
        self._on_end = on_end
        self._is_ending = False
        self._ending_begun = threading.Event()
        self._goodbye: asyncio.Task[None] | None = None  # a loop refers to its tasks only weakly
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"async-{name}")
        self._thread.start()

    def post(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call it soon, in the thread of the loop; never if the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def call(self, function: Callable[..., Awaitable[Any] | Any], *arguments: Any) -> None:
        """Call a function or coroutine function in the loop, and wait for its end. Raises what it raises."""
        failure = asyncio.run_coroutine_threadsafe(_outcome(function, *arguments), self.loop).result()
        if failure is not None:
            raise failure

    def end(self, last: Callable[[], Awaitable[None]]) -> None:
        """Await `last`, cancel what still runs in the loop, and end it, without waiting. The first call counts."""
        if not self._is_ending:
            self._is_ending = True
            self.post(self._begin_to_end, last)

    def join(self) -> None:
        """Wait for the end of the loop, and raise what `last` raised.

        A thread inside a call that blocks the loop is abandoned; it ends with the process.
        """
        if self._ending_begun.wait(_BEGIN_SECONDS) or not self._thread.is_alive():
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    @property
    def running_frame(self) -> FrameType | None:
        """The frame that the thread executes if it is inside a task, where it should never wait."""
        if self.loop.is_closed() or asyncio.current_task(self.loop) is None:
            return None
        return sys._current_frames().get(self._thread.ident or 0)

    def _run(self) -> None:
        failure = None
        try:
            self.loop.run_forever()
        except BaseException as raised:  # noqa: BLE001  raised by the slot's thread
            failure = raised
        self._ending_begun.set()
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # private: it ignores its cancellation
        self.loop.close()
        self._on_end(failure)

    def _begin_to_end(self, last: Callable[[], Awaitable[None]]) -> None:
        self._ending_begun.set()
        self._goodbye = self.loop.create_task(self._end(last))

    async def _end(self, last: Callable[[], Awaitable[None]]) -> None:
        try:
            self._failure = await _outcome(last)
            await cancelled(asyncio.all_tasks() - {asyncio.current_task()})
            await self.loop.shutdown_asyncgens()
        finally:
            self.loop.stop()


async def cancelled(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel tasks, and wait for their end as long as they may take."""
    found = [task for task in tasks if task is not None]
    for task in found:
        task.cancel()
    if found:
        await asyncio.wait(found, timeout=CANCEL_SECONDS)


async def _outcome(function: Callable[..., Any], *arguments: Any) -> BaseException | None:
    """Call a function or coroutine function, and return its failure: a SystemExit would end the loop at once."""
    try:
        made = function(*arguments)
        if isawaitable(made):
            await made
    except BaseException as failure:  # noqa: BLE001  raised by the thread that waits for it
        return failure
    return None


def coroutine_stack(coroutine: Any) -> traceback.StackSummary:
    """Return where a suspended coroutine waits: its own frame, and those of the coroutines that it awaits."""
    frames = []
    while isinstance(coroutine, CoroutineType) and coroutine.cr_frame is not None:
        frames.append((coroutine.cr_frame, coroutine.cr_frame.f_lineno))
        coroutine = coroutine.cr_await
    return traceback.StackSummary.extract(iter(frames))
