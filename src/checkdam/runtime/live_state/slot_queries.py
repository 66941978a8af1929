"""Live state asked for while the slot works: nothing is kept for readers until the first of them comes.

The first question lets every store publish what it holds, at once if no epoch is under way here, else when it ends.
From then on each epoch's end publishes anew, until nobody has asked for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from checkdam.backends.contract import KeyedStateStore, Published
from checkdam.backends.published_view import not_asked_for
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.live_state.query_messages import (
    Answer,
    Ask,
    FoundKeys,
    FoundPage,
    FoundStates,
    GetKeys,
    GetPage,
    Refused,
    StateFacts,
    pack,
    unpack_asks,
)
from checkdam.state.descriptors import TIMER_STATES
from checkdam.state.spec import StateKind, StateSpec
from checkdam.types.type_text import text_of

_PATIENCE_SECONDS = 10.0
_KEPT_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.01


class Lock(Protocol):
    """What of a lock is needed to try whether it is free."""

    def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002  as Python's own locks have it

    def release(self) -> None: ...


class SlotQueries:
    """The readers' side of a slot. `answer` may be called from any thread; it never waits for records."""

    def __init__(
        self,
        subtask: SubtaskIndex,
        stores: Mapping[str, KeyedStateStore],
        border: Callable[[], Epoch | None],
        *,
        kept_seconds: float = _KEPT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stores` by uid. `border` tells the last epoch if the state is that of its end, None in the middle of one."""
        self._subtask = subtask
        self._stores = stores
        self._border = border
        self._kept_seconds = kept_seconds
        self._patience_seconds = patience_seconds
        self._seconds = seconds
        self._changed = threading.Condition()
        self._is_wanted = False
        self._is_published = False
        self._is_closed = False
        self._last_asked = 0.0
        self._epoch = Epoch(-1)
        self.on_change: Callable[[bool], None] = lambda is_published: None
        """Told when readers begin to be served, and when no longer."""

    @property
    def is_published(self) -> bool:
        return self._is_published

    def epoch_ended(self, epoch: Epoch) -> None:
        """Let readers see this epoch, if there are any; by whoever holds the slot's processing lock."""
        if not self._is_wanted:
            return
        if self._seconds() - self._last_asked > self._kept_seconds:
            self._drop()
        else:
            self._publish(epoch)

    def answer(self, request: bytes, processing: Lock) -> bytes:
        """One answer a question. `processing` is only tried, and only to begin."""
        asks = unpack_asks(request)
        self._last_asked = self._seconds()
        try:
            self._refuse_if_closed()
            if not self._is_published:
                self._begin(processing)
        except CheckdamError as error:
            return pack([Refused.of(error)] * len(asks))
        return pack([self._answer(ask) for ask in asks])

    def close(self) -> None:
        """Answer nothing any more; whoever waits hears at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StateNotReadyError(f"slot {self._subtask} has ended", hint="The job ends or fails over: ask again.")

    def _begin(self, processing: Lock) -> None:
        deadline = self._seconds() + self._patience_seconds
        self._is_wanted = True
        while not self._is_published:
            if processing.acquire(blocking=False):
                try:
                    epoch = self._border()
                    if epoch is not None and not self._is_published:
                        self._publish(epoch)
                        return
                finally:
                    processing.release()
            with self._changed:
                # The lock may also be held between epochs, by a call that publishes nothing: so look again soon.
                self._changed.wait_for(lambda: self._is_published or self._is_closed, _LOOK_AGAIN_SECONDS)
            self._refuse_if_closed()
            if self._seconds() > deadline:
                raise StateNotReadyError(
                    f"slot {self._subtask} is in an epoch that has not ended for {self._patience_seconds:g} s",
                    hint="Its state is told from the end of that epoch on: ask again.",
                )

    def _publish(self, epoch: Epoch) -> None:
        for store in self._stores.values():
            store.publish(epoch)
        self._epoch = epoch
        if not self._is_published:
            with self._changed:
                self._is_published = True
                self._changed.notify_all()
            self.on_change(True)  # noqa: FBT003  what it is told

    def _drop(self) -> None:
        self._is_wanted = self._is_published = False
        for store in self._stores.values():
            store.unpublish()
        self.on_change(False)  # noqa: FBT003  what it is told

    def _answer(self, ask: Ask) -> Answer:
        try:
            if isinstance(ask, GetKeys):
                published = self._store(ask.uid)
                if not self._has(published, ask):
                    return FoundKeys(self._epoch, [None] * len(ask.keys))
                return FoundKeys(*published.get(ask.name, ask.keys, ask.map_key))
            if isinstance(ask, GetPage):
                return self._page(ask)
            return self._states()
        except CheckdamError as error:
            return Refused.of(error)
        except Exception as error:  # noqa: BLE001  such as of a database that is being closed; other answers go out
            failure = StateNotReadyError(f"slot {self._subtask} cannot tell: {error}", hint="Ask again.")
            return Refused.of(failure)

    def _page(self, ask: GetPage) -> FoundPage:
        published = self._store(ask.uid)
        if not self._has(published, ask):
            return FoundPage(self._epoch, [], None)
        try:
            return FoundPage(*published.page(ask.name, ask.after, ask.limit))
        except ValueError as error:
            raise StateAccessError("there is no such place to go on from", hint="Begin without a cursor.") from error

    def _store(self, uid: str) -> Published:
        store = self._stores.get(uid)
        if store is None:
            raise StateAccessError(f'operator "{uid}" has no keyed state in slot {self._subtask}')
        published = store.published
        if published is None:
            raise StateNotReadyError(f"slot {self._subtask} no longer tells its state", hint="Ask again.")
        return published

    def _has(self, published: Published, ask: GetKeys | GetPage) -> bool:
        """Whether the function has asked for the state in this slot; in others it has.

        Raises:
            StateNotReadyError: it has not, but the slot has restored something of the state.
        """
        if published.has(ask.name):
            return True
        if ask.name in self._stores[ask.uid].not_asked_for:
            raise not_asked_for(ask.uid, ask.name)
        return False

    def _states(self) -> FoundStates:
        """Timers are state too, but none that a function has given a name."""
        published = {uid: self._store(uid) for uid in self._stores}
        facts = [
            _facts(uid, spec, each.entries(spec.name))
            for uid, each in published.items()
            for spec in each.specs
            if spec.kind is not StateKind.TIMER
        ]
        waiting = [
            (uid, name)
            for uid, store in self._stores.items()
            for name in store.not_asked_for
            if not name.startswith(TIMER_STATES)
        ]
        return FoundStates(self._epoch, facts, waiting)


def _facts(uid: str, spec: StateSpec, entries: int) -> StateFacts:
    return StateFacts(
        uid,
        spec.name,
        spec.kind,
        text_of(spec.value),
        None if spec.map_key is None else text_of(spec.map_key),
        None if spec.namespace is None else text_of(spec.namespace),
        spec.ttl is not None,
        entries,
    )
