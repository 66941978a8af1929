"""Serves queries of live state while the slot processes records. Nothing is kept for readers before the first query.

The first query makes every store publish its content, at once if no epoch is running here, else when the epoch ends.
From then on each epoch's end publishes again, until there has been no query for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from checkdam.backends.contract import KeyedStateStore, Published
from checkdam.backends.published_view import not_asked_for
from checkdam.errors import CheckdamError, StateAccessError, StateNotReadyError
from checkdam.ids import Epoch, SubtaskIndex
from checkdam.runtime.live_state.publication import Publication
from checkdam.runtime.live_state.published_operators import (
    PublishedElements,
    PublishedSizes,
    PublishedTimers,
    ReadOperator,
)
from checkdam.runtime.live_state.query_messages import (
    Answer,
    Ask,
    FindKeys,
    FoundKeys,
    FoundPage,
    FoundStates,
    FoundWindows,
    GetElements,
    GetKeys,
    GetPage,
    GetTimers,
    GetWindows,
    Refused,
    StateFacts,
    pack,
    unpack_asks,
)
from checkdam.state.descriptors import TIMER_STATES
from checkdam.state.spec import StateKind, StateSpec
from checkdam.state.state_count import StateCount
from checkdam.types.type_text import text_of

_PATIENCE_SECONDS = 10.0
_KEPT_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.01


class Lock(Protocol):
    """The part of a lock that is needed to try whether it is free."""

    def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002  the signature of Python's own locks

    def release(self) -> None: ...


class SlotQueries:
    """The readers' side of a slot. Any thread may call `answer`; it never waits for records."""

    def __init__(
        self,
        subtask: SubtaskIndex,
        stores: Mapping[str, KeyedStateStore],
        border: Callable[[], Epoch | None],
        operators: Mapping[str, ReadOperator] = MappingProxyType({}),
        *,
        kept_seconds: float = _KEPT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take stores and operators by uid.

        `border` returns the last epoch if the state is as of its end, None during an epoch.
        """
        self._subtask = subtask
        self._stores = stores
        self._border = border
        self._kept_seconds = kept_seconds
        self._patience_seconds = patience_seconds
        self._seconds = seconds
        self._changed = threading.Condition()
        self._sizes = PublishedSizes(operators)
        self._elements = PublishedElements(operators)
        self._timers = PublishedTimers(operators)
        self._keyed = Publication(self._publish_keyed, self._drop_keyed)
        self._of = {
            GetElements: Publication(self._elements.publish, self._elements.drop),
            GetTimers: Publication(self._timers.publish, self._timers.drop),
        }
        self._publications = (self._keyed, *self._of.values())
        self._is_closed = False
        self.on_change: Callable[[bool], None] = lambda is_published: None
        """Called when serving readers begins and when it ends."""

    @property
    def is_published(self) -> bool:
        return any(each.is_published for each in self._publications)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Publish this epoch to readers, if there are any. The caller holds the slot's processing lock."""
        for each in self._publications:
            if not each.is_wanted:
                continue
            if self._seconds() - each.last_asked > self._kept_seconds:
                each.drop()
                if not self.is_published:
                    self.on_change(False)  # noqa: FBT003  the callback's one argument
            else:
                self._publish(each, epoch)

    def answer(self, request: bytes, processing: Lock) -> bytes:
        """Return one answer per query. Only tries to take `processing`, and only for the first query of its kind."""
        asks = unpack_asks(request)
        now = self._seconds()
        needed = {self._of.get(type(ask), self._keyed) for ask in asks}
        for each in needed:
            each.last_asked = now
        try:
            self._refuse_if_closed()
            for each in needed:
                if not each.is_published:
                    self._begin(each, processing)
        except CheckdamError as error:
            return pack([Refused.of(error)] * len(asks))
        return pack([self._answer(ask) for ask in asks])

    def close(self) -> None:
        """Answer no more queries; waiting callers return at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StateNotReadyError(f"slot {self._subtask} has ended", hint="The job ends or fails over: ask again.")

    def _begin(self, publication: Publication, processing: Lock) -> None:
        deadline = self._seconds() + self._patience_seconds
        publication.is_wanted = True
        while not publication.is_published:
            if processing.acquire(blocking=False):
                try:
                    epoch = self._border()
                    if epoch is not None and not publication.is_published:
                        self._publish(publication, epoch)
                        return
                finally:
                    processing.release()
            with self._changed:
                # The lock may also be held between epochs, by a call that publishes nothing: so look again soon.
                self._changed.wait_for(lambda: publication.is_published or self._is_closed, _LOOK_AGAIN_SECONDS)
            self._refuse_if_closed()
            if self._seconds() > deadline:
                raise StateNotReadyError(
                    f"slot {self._subtask} is in an epoch that has not ended for {self._patience_seconds:g} s",
                    hint="Its state can be queried from the end of that epoch on: ask again.",
                )

    def _publish(self, publication: Publication, epoch: Epoch) -> None:
        is_first = not self.is_published
        publication.publish(epoch, self._changed)
        if is_first:
            self.on_change(True)  # noqa: FBT003  the callback's one argument

    def _publish_keyed(self, epoch: Epoch) -> None:
        for store in self._stores.values():
            store.publish(epoch)
        self._sizes.publish()

    def _drop_keyed(self) -> None:
        for store in self._stores.values():
            store.unpublish()

    def _answer(self, ask: Ask) -> Answer:
        try:
            if isinstance(ask, GetKeys):
                published = self._store(ask.uid)
                if not self._has(published, ask):
                    return FoundKeys(self._epoch, [None] * len(ask.keys))
                return FoundKeys(*published.get(ask.name, ask.keys, ask.map_key))
            if isinstance(ask, GetPage | FindKeys):
                return self._page(ask)
            if isinstance(ask, GetWindows):
                return self._windows(ask)
            if isinstance(ask, GetElements):
                return self._elements.page(ask)
            if isinstance(ask, GetTimers):
                return self._timers.next(ask)
            return self._states()
        except CheckdamError as error:
            return Refused.of(error)
        except Exception as error:  # noqa: BLE001  e.g. a database that is being closed; other answers are still sent
            failure = StateNotReadyError(f"slot {self._subtask} cannot tell: {error}", hint="Ask again.")
            return Refused.of(failure)

    def _page(self, ask: GetPage | FindKeys) -> FoundPage:
        published = self._store(ask.uid)
        if not self._has(published, ask):
            return FoundPage(self._epoch, [], None)
        try:
            if isinstance(ask, FindKeys):
                return FoundPage(*published.find(ask.name, ask.after, ask.limit, ask.text))
            return FoundPage(*published.page(ask.name, ask.after, ask.limit))
        except ValueError as error:
            raise StateAccessError("there is no such place to go on from", hint="Begin without a cursor.") from error

    @property
    def _epoch(self) -> Epoch:
        return self._keyed.epoch

    def _windows(self, ask: GetWindows) -> FoundWindows:
        published = self._store(ask.uid)
        if not self._has(published, ask):
            return FoundWindows(self._epoch, [[] for _ in ask.keys])
        return FoundWindows(*published.windows(ask.name, ask.keys, ask.map_key))

    def _store(self, uid: str) -> Published:
        store = self._stores.get(uid)
        if store is None:
            raise StateAccessError(f'operator "{uid}" has no keyed state in slot {self._subtask}')
        published = store.published
        if published is None:
            raise StateNotReadyError(f"slot {self._subtask} no longer tells its state", hint="Ask again.")
        return published

    def _has(self, published: Published, ask: GetKeys | GetPage | GetWindows | FindKeys) -> bool:
        """Return whether the function has declared the state in this slot. It has in others.

        Raises:
            StateNotReadyError: it has not, but the slot has restored something of the state.
        """
        if published.has(ask.name):
            return True
        if ask.name in self._stores[ask.uid].not_asked_for:
            raise not_asked_for(ask.uid, ask.name)
        return False

    def _states(self) -> FoundStates:
        """Return the states. Timers are told apart: they are state, but not one that a function has named."""
        published = {uid: self._store(uid) for uid in self._stores}
        facts = [
            _facts(uid, spec, each.count(spec.name))
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
        waiting += self._sizes.not_asked_for
        return FoundStates(self._epoch, facts, waiting, self._sizes.states, self._sizes.timers)


def _facts(uid: str, spec: StateSpec, held: StateCount) -> StateFacts:
    return StateFacts(
        uid,
        spec.name,
        spec.kind,
        text_of(spec.value),
        None if spec.map_key is None else text_of(spec.map_key),
        None if spec.namespace is None else text_of(spec.namespace),
        spec.ttl is not None,
        held,
    )
