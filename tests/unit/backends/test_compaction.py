from __future__ import annotations

import math
import random

import msgspec
import pytest

from checkdam.backends import compaction
from checkdam.backends.compaction import CHAIN_LENGTH, Pruning, merge, plan
from checkdam.backends.state_file import BlockContent, FileInfo, StateFileWriter, StateInfo, read_state_file
from checkdam.errors import StorageError
from checkdam.state.snapshot_handles import StateFile
from checkdam.testing import Fault, FaultyStorage, MemoryStorage
from checkdam.types.serializers import serializer
from checkdam.types.type_info import type_info

GROUPS = 8
Changes = dict[str, int | None]


def write(storage: MemoryStorage, path: str, kind: str, states: dict[str, Changes]) -> StateFile:
    infos = [StateInfo(name, "value", '"int"') for name in states]
    writer = StateFileWriter(storage, path, FileInfo(kind, "op", 0, 1, GROUPS, '"str"', infos))  # type: ignore[arg-type]
    for index, changes in enumerate(states.values()):
        for group in range(GROUPS):
            mine = {key: value for key, value in changes.items() if len(key) % GROUPS == group}
            found = {key: value for key, value in mine.items() if value is not None}
            removed = [key for key in mine if key not in found]
            if mine:
                parts = (list(found), list(found.values()), removed)
                encoded = map(msgspec.msgpack.encode, parts)
                writer.add_block(index, BlockContent([group], [len(found)], [len(removed)], *encoded))
    return writer.finish()


def read(storage: MemoryStorage, file: StateFile) -> dict[str, Changes]:
    reader = read_state_file(storage, file.path, file.size)
    content: dict[str, Changes] = {}
    for index, info in enumerate(reader.info.states):
        changes = content.setdefault(info.name, {})
        for block in reader.blocks(index):
            keys, values, removed = map(msgspec.msgpack.decode, block.unpack())
            changes.update(zip(keys, values, strict=True))
            changes.update(dict.fromkeys(removed))
    return content


def test_the_newest_entry_wins_and_a_base_forgets_removed_keys() -> None:
    storage = MemoryStorage()
    files = [
        write(storage, "1", "base", {"s": {"a": 1, "bb": 1, "ccc": 1, "d": 1}}),
        write(storage, "2", "delta", {"s": {"a": 2, "bb": None, "ccc": None}, "new": {"x": 1}}),
        write(storage, "3", "delta", {"s": {"ccc": 3, "eeee": None}}),
    ]

    merged = merge(storage, files, "merged")

    assert read(storage, merged) == {"s": {"a": 2, "ccc": 3, "d": 1}, "new": {"x": 1}}
    assert read_state_file(storage, merged.path, merged.size).info.kind == "base"


def test_merged_deltas_keep_hiding_what_lies_below() -> None:
    storage = MemoryStorage()
    files = [
        write(storage, "1", "delta", {"s": {"a": 1, "bb": None}}),
        write(storage, "2", "delta", {"s": {"a": None, "ccc": 2}}),
    ]

    merged = merge(storage, files, "merged")

    assert read(storage, merged) == {"s": {"a": None, "bb": None, "ccc": 2}}
    assert read_state_file(storage, merged.path, merged.size).info.kind == "delta"


@pytest.mark.parametrize("start", [0, 1])
def test_a_merged_run_stands_for_its_files_whatever_they_hold(start: int) -> None:
    rng = random.Random(7)
    storage = MemoryStorage()
    model: Changes = {}
    files = []
    for number in range(6):
        changes = {"k" * rng.randint(1, 30): rng.choice([None, number]) for _ in range(20)}
        if number == 0:
            changes = dict.fromkeys(changes, 0)
        model.update(changes)
        files.append(write(storage, str(number), "delta" if number else "base", {"s": changes}))

    chain = [*files[:start], merge(storage, files[start:], "merged")]

    state: Changes = {}
    for file in chain:
        state.update(read(storage, file)["s"])
    expected = {key: value for key, value in model.items() if value is not None}
    assert {key: value for key, value in state.items() if value is not None} == expected


def test_merging_cuts_blocks_at_key_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BLOCK_BYTES", 20)
    storage = MemoryStorage()
    content: dict[str, Changes] = {"s": {"k" * i: i for i in range(1, 40)}}
    files = [write(storage, "1", "base", content), write(storage, "2", "delta", {"s": {"k": -1}})]

    merged = merge(storage, files, "merged")

    blocks = read_state_file(storage, merged.path, merged.size).info.blocks
    assert len(blocks) == GROUPS
    assert [block.first for block in blocks] == sorted(block.first for block in blocks)
    assert read(storage, merged) == {"s": {**content["s"], "k": -1}}


def test_a_failed_merge_leaves_the_old_files_and_no_other() -> None:
    storage = MemoryStorage()
    files = [write(storage, "1", "base", {"s": {"a": 1}}), write(storage, "2", "delta", {"s": {"a": 2}})]

    with pytest.raises(StorageError):
        merge(FaultyStorage(storage, 0, Fault.REFUSED), files, "merged")

    assert [status.path for status in storage.list("")] == ["1", "2"]


def test_a_short_chain_is_left_alone() -> None:
    assert plan([StateFile(str(i), 100_000) for i in range(CHAIN_LENGTH)]) is None


def test_equal_deltas_merge_without_their_large_base() -> None:
    files = [StateFile("base", 100 << 20), *(StateFile(str(i), 1 << 20) for i in range(CHAIN_LENGTH))]

    assert plan(files) == slice(1, len(files))


@pytest.mark.parametrize("base", [0, 1 << 20, 1 << 30])
@pytest.mark.parametrize("spread", [1, 10, 1000])
def test_chains_stay_short_and_each_byte_is_rewritten_a_bounded_number_of_times(base: int, spread: int) -> None:
    rng = random.Random(spread)
    chain = [StateFile("base", base)]
    smallest, written, rewritten, longest = 64 * 1024, 0, 0, 0

    for number in range(5000):
        run = plan(chain)
        if run is not None:
            size = sum(file.size for file in chain[run])
            rewritten += size
            chain = [*chain[: run.start], StateFile(f"m{number}", size)]
        chain.append(StateFile(str(number), smallest * rng.randint(1, spread)))
        written += chain[-1].size
        longest = max(longest, len(chain))

    assert rewritten <= (written + base) * (1 + math.log((written + base) / smallest, 1.5))
    assert longest <= 12


def test_what_is_left_of_a_pruned_value_is_written() -> None:
    values = serializer(type_info(list[int]))
    entries = {b"a": values.encode_one([1, 9]), b"b": values.encode_one([9]), b"c": values.encode_one([1])}

    gone = Pruning(values, lambda stored: [each for each in stored if each > 5] or None).apply(entries)

    assert gone == {b"c"}
    assert entries == {b"a": values.encode_one([9]), b"b": values.encode_one([9])}
