"""Tells whether windows of a checkpoint can go on in the windows of a job."""

from __future__ import annotations

from collections.abc import Collection

from checkdam.errors import StateNotRestorableError
from checkdam.graph.operators import WindowKind
from checkdam.graph.windowing.assigners import MergingWindowAssigner
from checkdam.graph.windowing.window_contents import MERGING_WINDOWS, WINDOW_CONTENTS
from checkdam.ids import OperatorUid


def check_merging(uid: OperatorUid, kind: WindowKind, restored: Collection[str]) -> None:
    """Refuse restored windows that merge if those of the job do not, and the reverse; `restored` names the states.

    The contents of a window that merges lie under another window, so that the job would not find what to emit.

    Raises:
        StateNotRestorableError: names the operator and both kinds of windows.
    """
    merges = isinstance(kind.assigner, MergingWindowAssigner)
    if WINDOW_CONTENTS not in restored or merges is (MERGING_WINDOWS in restored):
        return
    merging, others = "windows that merge (sessions)", "windows that do not merge"
    had, has = (others, merging) if merges else (merging, others)
    raise StateNotRestorableError(
        f'operator "{uid}" had {had} in the checkpoint and has {has} in the job, which could not emit what the old ones'
        " keep",
        hint="Use windows of the old kind, or give the operator another uid to start its windows empty.",
    )
