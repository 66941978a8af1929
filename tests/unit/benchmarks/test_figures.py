from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from benchmarks.__main__ import COMPARISONS, comparisons
from benchmarks.kinds import ALONE
from benchmarks.measuring import Measurements, Side, steady_seconds
from benchmarks.processes import SideFailedError, Sides
from benchmarks.processor_time import MARK, ProcessorTime
from benchmarks.report import Figure, write_json
from benchmarks.sides.flink import emitted_epochs, ended_windows, join_files
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.state import one_epoch_each
from benchmarks.windows import WAYS, Windows
from benchmarks.words import Changes, Input, changes, pairs, timed, uniform
from tests.support.waiting import poll

pytestmark = pytest.mark.slow

OURS, THEIRS = Side("ours", "ours", {"records": 4}), Side("theirs", "theirs", {"records": 4})


@pytest.mark.parametrize(
    ("figure", "passes"),
    [
        (Figure("speed", 25.0, at_least=25), True),
        (Figure("speed", 24.999, at_least=25), False),
        (Figure("cost", 1.4, at_most=1.4), True),
        (Figure("cost", 1.4001, at_most=1.4), False),
    ],
)
def test_a_figure_passes_on_its_bar_and_not_beyond(figure: Figure, passes: bool) -> None:
    assert figure.passes is passes


def test_the_json_has_the_figures_with_a_bar_and_no_others(tmp_path: Path) -> None:
    figures = [Figure("a", 30, at_least=25), Figure("background", 1), Figure("b", 2, at_most=1.5)]

    write_json(figures, tmp_path / "build" / "bench.json")

    assert json.loads((tmp_path / "build" / "bench.json").read_text()) == [
        {"name": "a", "value": 30, "bar": 25, "pass": True},
        {"name": "b", "value": 2, "bar": 1.5, "pass": False},
    ]


def test_steady_state_leaves_the_first_epochs_out() -> None:
    ends = [10.0, 15.0, 17.0, 18.0, 19.5]
    epochs = [{"ended_at": end, "records": 4.0} for end in ends]

    seconds = steady_seconds(epochs, Input("", 1, (4,) * 5), first=3)

    assert seconds == [1.0, 1.5]


def test_a_side_that_saw_other_records_is_not_compared() -> None:
    epochs = [{"ended_at": 1.0, "records": 4.0}, {"ended_at": 2.0, "records": 3.0}]

    with pytest.raises(SideFailedError, match=r"\(4, 3\)"):
        steady_seconds(epochs, Input("", 1, (4, 4)), first=1)


def test_epochs_of_different_sizes_are_not_compared(tmp_path: Path) -> None:
    measurements = Measurements(_Scripted(tmp_path, {"ours": [1.0, 2.0], "theirs": [1.0, 5.0]}), tmp_path)
    measurements.measure([OURS], Input("", 1, (4, 4)), first=1)
    smaller = Side("theirs", "theirs", {"records": 2})
    measurements.measure([smaller], Input("", 1, (2, 2)), first=1)

    assert measurements.rate(OURS).value == 4.0
    with pytest.raises(ValueError, match=r"\(4, 2\) records"):
        measurements.speed(OURS, smaller)


def test_sides_with_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    measurements = Measurements(_Scripted(tmp_path, {"ours": [1.0, 2.0], "theirs": [1.0, 5.0]}), tmp_path)
    other = Side(OURS.name, "theirs", {"records": 4})
    measurements.measure([OURS, other], Input("", 1, (4, 4)), first=1)

    assert measurements.speed(OURS, other) == 4.0


def test_how_many_times_as_fast_is_told_by_the_medians_of_epochs(tmp_path: Path) -> None:
    ends = {"ours": [1.0, 2.0, 4.0, 6.0], "theirs": [1.0, 11.0, 41.0, 51.0]}
    measurements = Measurements(_Scripted(tmp_path, ends), tmp_path)

    measurements.measure([OURS, THEIRS], Input("", 1, (4,) * 4), first=1)

    assert measurements.speed(OURS, THEIRS) == 5.0


def test_epochs_of_several_sizes_are_told_apart(tmp_path: Path) -> None:
    sizes = [4, 4, 2, 2]
    side = Side("ours", "ours", {"records": sizes})
    measurements = Measurements(_Scripted(tmp_path, {"ours": [1.0, 3.0, 4.0, 5.5]}), tmp_path)

    measurements.measure([side], Input("", 1, tuple(sizes)), first=1)

    assert measurements.records_a_second(side, 4) == 4 / 2.0
    assert measurements.records_a_second(side, 2) == 2 / 1.25
    assert measurements.rate(side, 2) == Figure("ours, 2 an epoch", 2 / 1.25, "records/s", core_us=1.25e6)
    with pytest.raises(ValueError, match=r"\(4, 2\) records: say which"):
        measurements.median(side)


def test_processor_time_counts_marked_processes_also_after_their_end(tmp_path: Path) -> None:
    """The child says itself what it has used; what it uses to end is not in that."""
    program = "import time\nwhile time.process_time() < 1.0: pass\nprint(time.process_time(), flush=True)\ninput()"
    before = time.perf_counter()
    with ProcessorTime("of this test") as processor:
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, MARK: "of this test"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        used = float(child.stdout.readline())
        poll(
            lambda: processor.at(time.perf_counter()) >= used - 0.05,
            lambda: "the child's time is not counted",
            seconds=60,
        )
        child.communicate(b"\n")
        ended = processor.at(time.perf_counter())
    after = processor.at(time.perf_counter())

    assert processor.at(before) < 0.5
    assert used - 0.05 <= ended <= after <= used + 0.5


def test_a_comparison_tells_why_a_side_of_it_failed(tmp_path: Path) -> None:
    measurements = Measurements(_Scripted(tmp_path, {"ours": [1.0, 2.0]}), tmp_path)
    measurements.measure([OURS, THEIRS], Input("", 1, (4, 4)), first=1)

    with pytest.raises(SideFailedError, match="theirs broke"):
        measurements.speed(OURS, THEIRS)


def test_only_checkpoints_of_one_epoch_count_and_each_with_its_own_changes() -> None:
    source = Changes(Input("", 1, (9, 2, 2, 2, 2)), (20, 30, 40, 50))
    taken = [{"epoch": epoch} for epoch in (1, 3, 4, 5)]

    assert one_epoch_each(taken, source) == [{"epoch": 4, "serialized": 40}, {"epoch": 5, "serialized": 50}]


def test_the_input_has_the_records_and_files_it_says(tmp_path: Path) -> None:
    made = uniform(tmp_path / "words", [10, 7], keys=3)

    epochs = [[line for file in pair for line in file] for pair in _pairs(_lines(tmp_path / "words"))]
    assert made.epochs == tuple(map(len, epochs)) == (10, 7)
    assert {word for epoch in epochs for word in epoch} <= {"word0", "word1", "word2"}


def test_every_line_of_pairs_is_a_word_and_one_of_its_entries(tmp_path: Path) -> None:
    made = pairs(tmp_path / "pairs", [300, 100], keys=3, entries=4)

    lines = [path.read_text().splitlines() for path in sorted((tmp_path / "pairs").iterdir())]
    assert made.epochs == tuple(len(one) + len(other) for one, other in _pairs(lines)) == (300, 100)
    assert {line for file in lines for line in file} == {
        f"word{key} e{entry}" for key in range(3) for entry in range(4)
    }


def test_each_epoch_of_a_timed_input_has_its_own_seconds(tmp_path: Path) -> None:
    made = timed(tmp_path / "timed", [300, 100], keys=3, seconds=10)

    epochs = [one + other for one, other in _pairs(_lines(tmp_path / "timed"))]  # words and times in turns
    assert made.epochs == tuple(len(epoch) // 2 for epoch in epochs) == (300, 100)
    assert [{int(at) // 10_000 for at in epoch[1::2]} for epoch in epochs] == [{0}, {1}]
    assert {word for epoch in epochs for word in epoch[::2]} == {"word0", "word1", "word2"}


def test_sliding_windows_are_measured_in_every_way_without_spark(tmp_path: Path) -> None:
    """The side itself compares the results."""
    sizes = {"size": 60, "slide": 1, "keys": 5, "records": 200, "epochs": 3, "seconds": 10}

    seconds = Sides(tmp_path).run("sliding_windows", "sliding", **sizes)

    assert {way: len(each) for way, each in seconds.items()} == dict.fromkeys(WAYS, 2)


def test_flink_gets_every_line_with_the_epochs_in_their_order_in_each_file(tmp_path: Path) -> None:
    timed(tmp_path / "timed", [30, 10, 20], keys=3, seconds=10)

    join_files(tmp_path / "timed", tmp_path / "joined", subtasks=2)

    joined = _lines(tmp_path / "joined")
    assert sorted(chain(*joined)) == sorted(chain(*_lines(tmp_path / "timed")))
    epochs = [[int(at) // 10_000 for at in file[1::2]] for file in joined]
    assert epochs == [[0] * 15 + [1] * 5 + [2] * 10] * 2


def test_a_window_of_flink_ends_with_the_last_subtask_and_has_the_records_of_all(tmp_path: Path) -> None:
    output, ended = tmp_path / "output" / "hour", tmp_path / "ended"
    output.mkdir(parents=True)
    ended.mkdir()
    (output / "part-0").write_text("(word1,0,3)\n(word1,10000,2)\n")
    (output / "part-1").write_text("(word2,0,1)\n")
    (ended / "a.json").write_text(json.dumps({"10000": 9.0, "0": 4.0}))
    (ended / "b.json").write_text(json.dumps({"0": 5.0}))

    windows = ended_windows(tmp_path / "output", ended)

    assert windows == [{"ended_at": 5.0, "records": 4}, {"ended_at": 9.0, "records": 2}]


def test_an_epoch_of_flink_ends_when_its_subtasks_together_emitted_its_records(tmp_path: Path) -> None:
    _write_times(tmp_path / "0.bin", (5, 1_000_000_000), (5, 3_000_000_000), (2, 6_000_000_000))
    _write_times(tmp_path / "1.bin", (5, 2_000_000_000), (3, 5_000_000_000))

    epochs = emitted_epochs(tmp_path, [10, 5, 5])

    assert epochs == [
        {"ended_at": 2.0, "records": 10},
        {"ended_at": 3.0, "records": 5},
        {"ended_at": 6.0, "records": 5},
    ]


@pytest.mark.parametrize(("last", "emitted"), [(4, 9), (6, 11)])
def test_records_that_flink_lost_or_repeated_show_in_the_last_epoch(tmp_path: Path, last: int, emitted: int) -> None:
    _write_times(tmp_path / "0.bin", (5, 1_000_000_000), (emitted - 5, 2_000_000_000))

    epochs = emitted_epochs(tmp_path, [5, 5])

    assert [epoch["records"] for epoch in epochs] == [5, last]


@pytest.mark.parametrize("sizes", [FULL, QUICK])
def test_pyflink_is_compared_by_epochs_of_the_same_size_after_a_first_one(sizes: Sizes) -> None:
    first, *_, last = sizes.pyflink_epochs

    assert first < last == sizes.records


def test_without_pyflink_only_its_own_comparison_is_not_measured(tmp_path: Path) -> None:
    """Other sides than PyFlink's are measured by the same object afterwards, as if PyFlink were not asked for."""
    sizes = replace(QUICK, first_epochs=1, epochs=1, pyflink_epochs=(500, 10_000), session_first_epochs=(2_000,))
    sides = _WithoutPyFlink(tmp_path)
    windows = Windows(Measurements(sides, tmp_path), sides, sizes)

    with pytest.raises(SideFailedError, match=r"PyFlink needs Python 3\.9 to 3\.12"):
        windows.against_pyflink()

    named = [figure.name for figure in windows.windows() if figure.bar is not None]
    assert len(named) == 3
    assert not any("PyFlink" in name for name in named)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_restored_as_it_was_written_at_any_parallelism(tmp_path: Path, backend: str) -> None:
    """The sides themselves look whether the keys are there."""
    kept, sides = {"directory": str(tmp_path / "kept"), "backend": backend, "keys": 2_000}, Sides(tmp_path)

    full, later = sides.run("write_state", "write", **kept, changed=20, checkpoints=2, parallelism=2)["bytes"]
    restored = sides.run("restore_state", "restore", **kept, parallelism=6)

    assert 0 < later < full / 2
    assert len(restored["each"]) == 6
    assert restored["seconds"] == pytest.approx(sum(restored["each"]))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_kind_of_state_is_measured_without_spark(tmp_path: Path, backend: str) -> None:
    sizes = {"keys": 50, "maps": 5, "entries": 10, "records": 200, "epochs": 3}

    seconds = Sides(tmp_path).run("kinds", "kinds", backend=backend, **sizes)

    assert {kind: len(each) for kind, each in seconds.items()} == dict.fromkeys(ALONE, 2)


def test_every_comparison_has_a_name_to_ask_for_it_by(tmp_path: Path) -> None:
    assert tuple(comparisons(Sides(tmp_path), QUICK, tmp_path)[1]) == COMPARISONS


def test_each_epoch_changes_distinct_words_of_those_held(tmp_path: Path) -> None:
    made = changes(tmp_path / "words", held=50, changed=5, epochs=3)

    first, *later = _lines(tmp_path / "words")
    assert len(first) == len(set(first)) == 50
    assert all(len(set(words)) == 5 and set(words) <= set(first) for words in later)
    sizes = [sum(len(msgspec.msgpack.encode(word)) + 1 for word in words) for words in later]
    assert list(made.serialized) == sizes  # small counts take one byte


def test_files_are_older_the_sooner_they_are_to_be_read(tmp_path: Path) -> None:
    uniform(tmp_path / "words", [2] * 12, keys=3)

    times = [path.stat().st_mtime for path in sorted((tmp_path / "words").iterdir())]
    assert times == sorted(set(times))


def test_a_side_that_fails_is_told_with_what_it_said_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SideFailedError, match="FileNotFoundError"):
        Sides(tmp_path).run(
            "restore_state", "no such state", directory=str(tmp_path / "absent"), backend="hashmap", keys=1
        )

    assert not list(tmp_path.iterdir())


class _Scripted(Sides):
    """Sides whose epochs end at times that are told, with the records of the input; others break."""

    def __init__(self, root: Path, ends: dict[str, list[float]]) -> None:
        super().__init__(root)
        self._ends = ends

    def measured(self, side: str, what: str, **arguments: Any) -> tuple[Any, ProcessorTime]:
        if side not in self._ends:
            raise SideFailedError(f"{side} broke")
        records = arguments["records"]
        sizes = records if isinstance(records, list) else [records] * len(self._ends[side])
        epochs = [{"ended_at": end, "records": each} for end, each in zip(self._ends[side], sizes, strict=True)]
        return {"epochs": epochs}, _TwoSecondsEachSecond("unused")


class _TwoSecondsEachSecond(ProcessorTime):
    """The processor time of a side that keeps two cores busy."""

    def at(self, moment: float) -> float:
        return 2.0 * moment


class _WithoutPyFlink(Sides):
    """Sides whose epochs take a second each, on a machine that PyFlink does not run on."""

    def measured(self, side: str, what: str, **arguments: Any) -> tuple[Any, ProcessorTime]:
        if side == "pyflink_tumbling":
            raise SideFailedError("PyFlink needs Python 3.9 to 3.12")
        if side == "sliding_windows":
            return {way: [1.0] for way in WAYS}, ProcessorTime("unused")
        lines = [path.read_text().count("\n") for path in sorted(Path(arguments["path"]).iterdir())]
        records = [one + other for one, other in zip(lines[::2], lines[1::2], strict=True)]
        epochs = [{"ended_at": end, "records": each} for end, each in enumerate(records)]
        return {"epochs": epochs}, ProcessorTime("unused")


def _write_times(file: Path, *entries: tuple[int, int]) -> None:
    np.array(entries, dtype=">i8").tofile(file)


def _lines(directory: Path) -> list[list[str]]:
    return [path.read_text().split() for path in sorted(directory.iterdir())]


def _pairs(files: list[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    return zip(files[::2], files[1::2], strict=True)
