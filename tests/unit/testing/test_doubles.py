from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from checkdam.errors import StorageError, StorageUncertainError
from checkdam.storage import Storage
from checkdam.testing import Fault, FaultyStorage, ManualClock, MemoryStorage


def _output(storage: Storage) -> None:
    with storage.open_output("out") as output:
        output.write(b"1")


CHANGES: dict[str, tuple[Callable[[Storage], None], list[str]]] = {
    "write": (lambda storage: storage.write("new", b"1"), ["d/f", "new"]),
    "rename": (lambda storage: storage.rename("d/f", "g"), ["g"]),
    "delete": (lambda storage: storage.delete("d/f"), []),
    "delete_directory": (lambda storage: storage.delete_directory("d"), []),
    "open_output": (_output, ["d/f", "out"]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fault", Fault)
def test_a_refused_change_did_not_happen_and_one_with_its_reply_lost_did(change: str, fault: Fault) -> None:
    inner = MemoryStorage()
    inner.write("d/f", b"0")
    act, after = CHANGES[change]

    with pytest.raises(StorageError) as caught:
        act(FaultyStorage(inner, at=0, fault=fault))

    assert isinstance(caught.value, StorageUncertainError) == (fault is Fault.REPLY_LOST)
    assert [status.path for status in inner.list("")] == (["d/f"] if fault is Fault.REFUSED else after)


def test_only_the_nth_change_fails_and_reads_do_not_count() -> None:
    storage = FaultyStorage(MemoryStorage(), at=1, fault=Fault.REFUSED)
    storage.write("a", b"")
    storage.read("a")
    failed_before = storage.has_failed

    with pytest.raises(StorageError):
        storage.write("b", b"")
    storage.write("c", b"")

    assert (failed_before, storage.has_failed) == (False, True)
    assert storage.operations == 3
    assert [status.path for status in storage.list("")] == ["a", "c"]


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock()
    start = clock.now()
    assert clock.now() == start

    clock.advance(timedelta(minutes=1))
    clock.advance(0.5)

    assert clock.now() - start == timedelta(seconds=60.5)
    assert clock.monotonic() == 60.5
    with pytest.raises(ValueError):
        clock.advance(-1)
