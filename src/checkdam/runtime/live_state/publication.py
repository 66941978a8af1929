"""When a slot publishes its state to readers: from the first query on, until there has been none for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

from checkdam.ids import Epoch


class Publication:
    """A part of a slot's state that is published together. Nothing is kept of it without readers."""

    def __init__(self, publish: Callable[[Epoch], None], drop: Callable[[], None]) -> None:
        self._publish = publish
        self._drop = drop
        self.is_wanted = False
        self.is_published = False
        self.last_asked = 0.0
        self.epoch = Epoch(-1)

    def publish(self, epoch: Epoch, changed: threading.Condition) -> None:
        """Publish the state as of the end of this epoch, and wake those who wait for the first time."""
        self._publish(epoch)
        self.epoch = epoch
        if not self.is_published:
            with changed:
                self.is_published = True
                changed.notify_all()

    def drop(self) -> None:
        self.is_wanted = self.is_published = False
        self._drop()
