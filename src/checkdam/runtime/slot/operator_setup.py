"""Opens one operator in its slot: its state, its sink, its function; and closes everything again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle

from checkdam.backends.contract import KeyedStateStore, StoreOwner
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.checkpoint.operator_state_file import redistribute
from checkdam.clock import Clock
from checkdam.connectors.contract import SinkWriter, WriterContext
from checkdam.graph.functions import AsyncFunction, CheckpointedFunction, RichFunction
from checkdam.graph.metrics import OperatorMetrics
from checkdam.graph.operators import ConnectKind, Operator, SinkKind, SourceFunctionKind
from checkdam.ids import OperatorUid
from checkdam.runtime.janitor import work_directory
from checkdam.runtime.slot.context import FunctionContext, OperatorTime, SnapshotContext
from checkdam.runtime.slot.event_time import EventTime
from checkdam.runtime.slot.messages import SlotSetup
from checkdam.runtime.slot.operator_processes import OperatorSetting, guarded, make_process
from checkdam.runtime.slot.operator_state import OperatorStates, ReadableState
from checkdam.runtime.slot.process import Process
from checkdam.runtime.slot.source_functions import SourceProcess
from checkdam.state.key_groups import key_group_range
from checkdam.state.snapshot_handles import OperatorStatePart, Redistribution
from checkdam.storage.contract import Storage


@dataclass(frozen=True)
class SlotResources:
    """The resources that all operators of a slot share."""

    setup: SlotSetup
    event_time: EventTime
    clock: Clock
    restore_from: Storage | None  # the directory of the files to restore
    records_came: Callable[[], None] = lambda: None  # called when a source function wants an epoch


class OpenOperator:
    """One operator of a slot with its resources. `closings` releases what `open` acquired, even if it failed."""

    def __init__(self, operator: Operator, slot: SlotResources) -> None:
        self.operator = own_copy(operator)
        self.uid = operator.uid or OperatorUid(f"operator-{operator.id}")  # without a uid it has nothing that is kept
        self._slot = slot
        self._subtask = slot.setup.subtask
        self._width = operator.parallelism or 1
        self._groups = slot.setup.plan.key_groups_of(operator.id)
        self._has_begun = False  # whether the function has
        self.store: KeyedStateStore | None = None
        self.writer: SinkWriter | None = None
        self.states: OperatorStates | None = None
        self.process = Process()
        self.metrics = OperatorMetrics(operator.name)

    def open(self) -> Process:
        operator, setup = self.operator, self._slot.setup
        is_sink = isinstance(operator.kind, SinkKind)
        if operator.key is not None and operator.is_stateful and not is_sink:
            self.store = self._open_store()
        if isinstance(operator.kind, SinkKind) and not operator.kind.spec.returns_to_spark:
            self.writer = operator.kind.spec.open_writer(
                WriterContext(setup.job_id, self.uid, setup.attempt, self._subtask, self._width)
            )
        self.states = self._open_states()
        time = OperatorTime(self._slot.clock)
        time.advance(self._slot.event_time.watermark_of(operator.id))
        keyed = OperatorKeyedState(self.store, time, self.uid) if self.store is not None else None
        self._has_begun = True
        self.process = make_process(
            operator,
            context=FunctionContext(operator.name, self._subtask, self._width, keyed, self._groups, self.metrics),
            store=self.store,
            writer=self.writer,
            around=self._setting(time),
        )
        return self.process

    def snapshot_state(self, context: SnapshotContext) -> tuple[OperatorStatePart, ...]:
        """Let the function update its operator state, and encode it."""
        if self.states is None:
            return ()
        function = self.operator.checkpointed_function
        if function is None:
            return self.states.snapshot()
        if isinstance(self.process, SourceProcess):
            return self.states.encode(guarded(self.operator, "snapshot_state", self.process.captured, context))
        guarded(self.operator, "snapshot_state", function.snapshot_state, context)
        return self.states.snapshot()

    def operator_state_sizes(self) -> list[tuple[str, Redistribution, str, int]]:
        """Return name, redistribution, type and number of elements of each operator state, as of an epoch's end."""
        if self.states is None:
            return []
        return self.states.sizes(self.process.last_captured if isinstance(self.process, SourceProcess) else None)

    def operator_states(self) -> list[ReadableState]:
        """Return the operator states as of an epoch's end, for readers. Runs no code of the function.

        Raises:
            JobGraphError: an element no longer has the declared type: it was changed in place.
        """
        if self.states is None:
            return []
        process = self.process
        captured = process.last_captured if isinstance(process, SourceProcess) else self.states.capture()
        return self.states.readable(captured)

    @property
    def is_finished(self) -> bool:
        """Whether it is a source function without more records."""
        return isinstance(self.operator.kind, SourceFunctionKind) and self.process.is_finished

    def closings(self) -> Iterator[Callable[[], None]]:
        """Yield the calls that release everything, in this order; each must run even if an earlier one failed."""
        yield self.process.close
        if self._has_begun and self.operator.rich_function is not None:
            yield self.operator.rich_function.close
        if self.writer is not None:
            yield self.writer.close
        if self.store is not None:
            yield self.store.close

    def _setting(self, time: OperatorTime) -> OperatorSetting:
        setup, operator = self._slot.setup, self.operator
        return OperatorSetting(
            time=time,
            clock=self._slot.clock,
            states=self.states,
            side_types={tag: each.output_type for tag, each in setup.plan.side_outputs_of(operator.id).items()},
            is_stamped=operator.id in setup.plan.assigners,
            is_restored=setup.restore is not None,
            had_finished=setup.restore is not None and setup.restore.had_finished(self.uid, self._subtask, self._width),
            observe=self._slot.event_time.observe,
            next_checkpoint=setup.next_checkpoint,
            records_came=self._slot.records_came,
        )

    def _open_store(self) -> KeyedStateStore:
        setup, key = self._slot.setup, self.operator.key
        assert key is not None
        groups = key_group_range(self._subtask, self._width, self._groups)
        owner = StoreOwner(
            uid=self.uid,
            subtask=self._subtask,
            attempt=setup.attempt,
            key_groups=groups,
            max_parallelism=self._groups,
            key_type=key.type,
            work_directory=lambda: work_directory(local_directory(setup)),
        )
        if setup.restore is None:
            return setup.backend.open(owner, (), None, claim=True)
        # Only what the subtask owns: at unchanged parallelism that is one handle, which its snapshots may build on.
        handles = [handle for handle in setup.restore.keyed.get(self.uid, ()) if len(handle.key_groups.overlap(groups))]
        return setup.backend.open(owner, handles, self._slot.restore_from, claim=setup.restore.claim)

    def _open_states(self) -> OperatorStates | None:
        """Open the operator states, also if only the checkpoint has any: undeclared state is carried over."""
        restore, operator = self._slot.setup.restore, self.operator
        handles = restore.operator.get(self.uid, ()) if restore is not None else ()
        is_broadcast = isinstance(operator.kind, ConnectKind) and bool(operator.kind.broadcast)
        if operator.checkpointed_function is None and not is_broadcast and not handles:
            return None
        restored = {}
        if handles:
            assert self._slot.restore_from is not None
            read = self._slot.restore_from.read
            restored = redistribute(handles, len(handles), self._width, self._subtask, read)
        return OperatorStates(self.uid, restored, is_first_subtask=self._subtask == 0)


def own_copy(operator: Operator) -> Operator:
    """Copy an operator with its function: one object given to two operators must not share its state."""
    if not isinstance(operator.function, RichFunction | CheckpointedFunction | AsyncFunction):
        return operator
    return replace(operator, kind=cloudpickle.loads(cloudpickle.dumps(operator.kind)))


def local_directory(setup: SlotSetup) -> Path:
    """Return the directory of the slot's working files; slots take turns among several, to spread over disks."""
    named = (setup.local_directory or tempfile.gettempdir()).split(",")
    return Path(named[setup.subtask % len(named)])
