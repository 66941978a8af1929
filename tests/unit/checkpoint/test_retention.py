from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkdam.checkpoint.retention import SharedFiles, checkpoints_to_drop
from checkdam.ids import CheckpointId
from checkdam.state.snapshot_handles import StateFile

A, B, C = (StateFile(f"shared/{name}", 1) for name in "abc")


@dataclass(frozen=True)
class Checkpoint:
    checkpoint_id: CheckpointId
    referenced: frozenset[StateFile] = frozenset()

    def files(self) -> frozenset[StateFile]:
        return self.referenced


def checkpoint(number: int, *files: StateFile) -> Checkpoint:
    return Checkpoint(CheckpointId(number), frozenset(files))


def test_the_oldest_beyond_the_number_retained_are_dropped_oldest_first() -> None:
    retained = [checkpoint(7), checkpoint(2), checkpoint(5), checkpoint(3)]

    assert [c.checkpoint_id for c in checkpoints_to_drop(retained, 2)] == [2, 3]


@pytest.mark.parametrize("num_retained", [4, 5])
def test_nothing_is_dropped_while_there_is_room(num_retained: int) -> None:
    assert checkpoints_to_drop([checkpoint(number) for number in range(4)], num_retained) == []


def test_a_file_is_given_up_when_its_last_checkpoint_goes() -> None:
    first, second = checkpoint(1, A, B), checkpoint(2, B, C)
    files = SharedFiles()
    files.register(first)
    files.register(second)

    assert files.release(first) == {A}
    assert files.release(second) == {B, C}


def test_a_foreign_file_is_never_given_up() -> None:
    files = SharedFiles(foreign=[A])
    files.register(checkpoint(1, A, B))
    files.own([A])

    assert files.release(checkpoint(1, A, B)) == {B}


def test_a_file_that_is_only_referred_to_is_given_up_once_it_proves_to_be_the_jobs_own() -> None:
    files = SharedFiles()
    files.acquire([A])

    assert files.let_go([A]) == frozenset()
    files.own([A])
    assert files.give_up_unreferenced([A]) == {A}
    assert files.give_up_unreferenced([A]) == frozenset()


def test_a_referenced_file_is_not_given_up() -> None:
    files = SharedFiles()
    files.register(checkpoint(1, A))

    assert files.give_up_unreferenced([A]) == frozenset()


def test_files_are_told_apart_by_path_alone() -> None:
    files = SharedFiles()
    files.register(checkpoint(1, A))
    files.register(checkpoint(2, StateFile(A.path, 99)))

    assert files.release(checkpoint(1, A)) == frozenset()


def test_letting_go_of_what_was_not_acquired_is_an_error() -> None:
    with pytest.raises(ValueError, match="more often"):
        SharedFiles().let_go([A])


file_sets = st.frozensets(st.sampled_from([StateFile(f"shared/{n}", n) for n in range(8)]))


@given(histories=st.lists(file_sets, max_size=12), num_retained=st.integers(1, 4), data=st.data())
def test_no_kept_file_is_given_up_and_no_unkept_file_stays(
    histories: list[frozenset[StateFile]], num_retained: int, data: st.DataObject
) -> None:
    shared = SharedFiles()
    retained: list[Checkpoint] = []
    on_disk: set[StateFile] = set()

    for number, files in enumerate(histories):
        retained.append(checkpoint(number, *files))
        shared.register(retained[-1])
        on_disk |= files
        for dropped in data.draw(st.permutations(checkpoints_to_drop(retained, num_retained))):
            retained.remove(dropped)
            given_up = shared.release(dropped)
            assert given_up <= on_disk
            on_disk -= given_up

        assert len(retained) <= num_retained
        assert on_disk == {file for kept in retained for file in kept.files()}
