"""Keys page by page."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.support.snapshot_files import written

from checkdam.errors import UsageError
from checkdam.state_reader import Savepoint
from checkdam.state_reader.pages import page
from checkdam.testing import MemoryStorage
from checkdam.testing.mounts import mount

HELD = {number: number * 2 for number in range(50)}


@dataclass
class Written:
    storage: MemoryStorage
    savepoint: Savepoint


@pytest.fixture
def kept() -> Written:
    """A state with far more keys than key groups."""
    storage = MemoryStorage()
    path = written(storage, {"op": {("sums", int, int): HELD}}, max_parallelism=3)
    return Written(storage, Savepoint.load(f"{mount(storage)}/{'/'.join(path.split('/')[-2:])}"))


@pytest.mark.parametrize("limit", [1, 7, 49, 50, 51])
def test_pages_hold_each_key_once_wherever_they_are_cut(kept: Written, limit: int) -> None:
    state = kept.savepoint.keyed_state("op", "sums")
    found: list[tuple[int, int]] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        assert pages < len(HELD), f"{cursor} leads nowhere"
        entries, cursor, _ = page(state, cursor, limit)
        found += [(key, value) for key, value, _, _ in entries]
        pages += 1

    assert sorted(found) == sorted(HELD.items())
    assert pages == -(-len(HELD) // limit)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_filter_finds_keys_by_their_text(kept: Written, limit: int) -> None:
    state = kept.savepoint.keyed_state("op", "sums")
    found: list[int] = []
    looked_at, cursor, is_begun = 0, None, False
    while not is_begun or cursor is not None:
        entries, cursor, scanned = page(state, cursor, limit, "4")
        found += [key for key, *_ in entries]
        looked_at, is_begun = looked_at + scanned, True

    assert sorted(found) == [number for number in HELD if "4" in str(number)]
    assert looked_at == len(HELD)


def test_a_filter_looks_at_a_limited_number_of_keys(kept: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkdam.state_reader.pages.MOST_SCANNED", 10)
    state = kept.savepoint.keyed_state("op", "sums")

    entries, cursor, scanned = page(state, None, 5, "nowhere")

    assert (entries, scanned) == ([], 10)
    assert cursor is not None


@pytest.mark.parametrize("cursor", ["x", "1", "1:", ":1", "3:0", "-1:0", "1:-1", "1:1:1", "9" * 50 + ":1"])
def test_what_is_no_cursor_is_refused(kept: Written, cursor: str) -> None:
    state = kept.savepoint.keyed_state("op", "sums")

    with pytest.raises(UsageError, match="not a cursor"):
        page(state, cursor, 10)
