"""`checkdam check`: job files against checkpoints that the real code has written, with nothing run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.windowed_jobs import BACKENDS, WindowedJob

from checkdam.backends import HashMapStateBackend, RocksDBStateBackend, StoreOwner
from checkdam.backends.contract import KeyedStateBackend
from checkdam.backends.keyed_state import OperatorKeyedState
from checkdam.checkpoint.checkpoint_store import CheckpointStore
from checkdam.checkpoint.completed import CompletedCheckpoint, OperatorEntry
from checkdam.checkpoint.operator_state_file import INLINE_LIMIT, keep
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointRetention
from checkdam.cli.main import command_line
from checkdam.ids import Attempt, CheckpointId, Epoch, JobId, OperatorUid, SubtaskIndex
from checkdam.runtime.slot.context import OperatorTime
from checkdam.runtime.slot.operator_state import OperatorStates
from checkdam.runtime.source_position import VERSION, HeldSource, SourcePosition, encode_position
from checkdam.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from checkdam.state.key_groups import KeyGroupRange
from checkdam.state.ttl import StateTtlConfig
from checkdam.storage import open_storage
from checkdam.storage.subtree import Subtree
from checkdam.testing.local_job import JOB_ID
from checkdam.types.type_info import type_info

JOB = JobId("0123456789abcdef0123456789abcdef")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

PROGRAM = """
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, NamedTuple
from checkdam import *

{class_visit}:
    page: str
    seconds: int
    {visit}

class Keep(KeyedProcessFunction, CheckpointedFunction):
    def initialize_state(self, ctx):
        self.offsets = ctx.operator_state_store.get_list_state(ListStateDescriptor("offsets", {offset}))
        {initialize}

    def snapshot_state(self, ctx):
        raise AssertionError("nothing runs")

    def open(self, ctx):
        self.visits = ctx.get_state(ValueStateDescriptor("visits", Visit))
        self.pages = ctx.get_map_state(MapStateDescriptor("pages", str, {page}, ttl={ttl}))
        {more}

    def process_element(self, value, ctx):
        raise AssertionError("nothing runs")

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection([("a", 1)]).key_by(lambda word: word[0], key_type={key})
words.process(Keep(), output_type=str).uid("{uid}").print()
env.execute("words")
raise AssertionError("the program ends at execute()")
"""
AS_IT_WAS: dict[str, str] = {
    "class_visit": "class Visit(NamedTuple)",
    "visit": "pass",
    "offset": "int",
    "initialize": "pass",
    "page": "int",
    "ttl": "None",
    "more": "pass",
    "key": "str",
    "uid": "keep",
}


class Visit(NamedTuple):
    page: str
    seconds: int


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


COLLECTION = HeldSource("source:collection", "collection", "", is_uid_derived=True)


def _checkpoint(
    root: Path,
    backend: KeyedStateBackend,
    *,
    ttl: StateTtlConfig | None = None,
    offset: int = 7,
    offsets: int = 1,
    held: Sequence[HeldSource] = (COLLECTION,),
    files: Mapping[str, bytes] | None = None,
) -> str:
    """What a run of the program as it was has left."""
    storage = Subtree(open_storage(str(root)), JOB)
    uid = OperatorUid("keep")
    owner = StoreOwner(
        uid,
        SubtaskIndex(0),
        Attempt("a1"),
        KeyGroupRange(0, 127),
        128,
        type_info(str),
        work_directory=lambda: root / "work",
    )
    (root / "work").mkdir()
    store = backend.open(owner, (), storage, claim=True)
    state = OperatorKeyedState(store, OperatorTime(), uid)
    visits = state.get_state(ValueStateDescriptor("visits", Visit))
    pages = state.get_map_state(MapStateDescriptor("pages", str, int, ttl=ttl))
    store.current_key = "k"
    visits.update(Visit("a", 5))
    pages["x"] = 1
    store.end_epoch()
    handle = store.snapshot(CheckpointId(1)).write(storage, "shared")
    store.close()
    operator_states = OperatorStates("keep", {}, is_first_subtask=True)
    operator_states.get_list_state(ListStateDescriptor("offsets", int)).add_all([offset] * offsets)
    kept = keep(operator_states.snapshot(), storage, "shared/operator-0")
    written = CompletedCheckpoint(
        checkpoint_id=CheckpointId(1),
        job_id=JOB,
        job_name="words",
        epoch=Epoch(7),
        triggered_at=AT,
        completed_at=AT + timedelta(milliseconds=80),
        parallelism=1,
        max_parallelism=128,
        operators=(
            OperatorEntry(uid, "Keep", 1, 128, {SubtaskIndex(0): handle}, operator_states={SubtaskIndex(0): kept}),
        ),
        source_position=encode_position(SourcePosition(-1, dict(files or {}), ["collection"], VERSION, list(held))),
    )
    CheckpointStore(open_storage(str(root)), JOB).write(written)
    return str(root / JOB / "chk-1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return _checkpoint(tmp_path, HashMapStateBackend())


def _check(checkpoint: str, *options: str, **changes: str) -> int:
    Path("job.py").write_text(PROGRAM.format(**AS_IT_WAS | changes))
    return command_line(["check", "job.py", "-s", checkpoint, *options])


def _fates(checkpoint: str, capsys: pytest.CaptureFixture[str], code: int = 0, **changes: str) -> dict[str, Any]:
    assert _check(checkpoint, "--json", **changes) == code
    states = json.loads(capsys.readouterr().out)["states"]
    return {state["state"]: state for state in states if state["kind"] != "source"}


@pytest.mark.parametrize("backend", [HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def test_an_unchanged_job_is_restored_as_is(
    backend: KeyedStateBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = _checkpoint(tmp_path, backend)

    assert _check(checkpoint) == 0

    out = capsys.readouterr().out
    assert out.splitlines() == [
        "source:collection\tposition\tsource\trestored as is",
        "keep\tvisits\tvalue\trestored as is",
        "keep\tpages\tmap\trestored as is",
        "keep\toffsets\tlist (operator)\trestored as is",
    ]


def test_settings_without_effect_are_told_beside_the_result(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("flink-conf.yaml").write_text("jobmanager.rpc.address: localhost\nexecution.checkpointing.unaligned: true\n")

    assert _check(checkpoint, "--config", "flink-conf.yaml", "--json") == 0

    told = capsys.readouterr()
    assert json.loads(told.out)["would_start"]
    first, second = sorted(line for line in told.err.splitlines() if "no effect" in line)
    assert "execution.checkpointing.unaligned has no effect: a barrier falls between two epochs" in first
    assert "jobmanager.rpc.address has no effect: Spark runs the job" in second


def test_a_changed_type_migrates(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    fates = _fates(checkpoint, capsys, visit='referrer: str = ""', page="int | None", offset="int | None")

    assert {name: state["fate"] for name, state in fates.items()} == dict.fromkeys(
        ("visits", "pages", "offsets"), "migrates"
    )
    assert fates["visits"]["reason"] == 'field "referrer": is str, filled with its default'


def test_what_only_the_job_has_is_new_and_what_only_the_checkpoint_has_is_carried(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fates = _fates(
        checkpoint,
        capsys,
        more='self.extra = ctx.get_list_state(ListStateDescriptor("extra", int))',
        initialize='ctx.operator_state_store.get_union_list_state(ListStateDescriptor("seen", str))',
        page='int) if False else MapStateDescriptor("renamed", str, int',
    )

    assert {name: (state["kind"], state["fate"]) for name, state in fates.items()} == {
        "visits": ("value", "restored as is"),
        "pages": ("map", "carried along"),
        "offsets": ("list (operator)", "restored as is"),
        "renamed": ("map", "new"),
        "extra": ("list", "new"),
        "seen": ("union list", "new"),
    }


@pytest.mark.parametrize(
    ("changes", "state", "told"),
    [
        ({"visit": "referrer: str"}, "visits", 'field "referrer": is str, new and without a default'),
        (
            {"class_visit": "@dataclass\nclass Visit", "visit": "referrer: str"},
            "visits",
            'field "referrer": is str, new and without a default',
        ),
        ({"page": "str"}, "pages", "int became str"),
        ({"offset": "str"}, "offsets", "int became str"),
        ({"ttl": "StateTtlConfig(timedelta(hours=1))"}, "pages", "time to live"),
        ({"key": "int"}, "visits", "its keys were str and are int in the job"),
        ({"offset": "str", "initialize": "self.offsets.get()[0]"}, "offsets", "int became str"),
    ],
)
def test_what_would_keep_the_job_from_starting_is_incompatible(
    changes: dict[str, str], state: str, told: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fates = _fates(checkpoint, capsys, 1, **changes)

    assert fates[state]["fate"] == "incompatible"
    assert told in fates[state]["reason"]


@pytest.mark.parametrize("default", ['referrer: str = ""', "referrer: list[str] = field(default_factory=list)"])
def test_a_field_of_a_dataclass_with_a_default_migrates(
    default: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fates = _fates(checkpoint, capsys, class_visit="@dataclass\nclass Visit", visit=default)

    assert fates["visits"]["fate"] == "migrates"
    assert "filled with its default" in fates["visits"]["reason"]


@pytest.mark.parametrize("backend", [HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def test_a_flipped_byte_in_any_file_is_told(
    backend: KeyedStateBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = _checkpoint(tmp_path, backend, offset=1 << 60, offsets=INLINE_LIMIT)
    files = [path for path in (tmp_path / JOB).rglob("*") if path.is_file() and "_terms" not in path.parts]
    tables = [path for path in files if path.name.endswith(".sst")]
    assert {"_metadata", "operator-0"} <= {path.name for path in files}
    assert bool(tables) == isinstance(backend, RocksDBStateBackend), files

    for path in files:
        whole = path.read_bytes()
        for at in {0, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1}:  # 20: behind the head, in the first block
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert _check(checkpoint) == 1, (path.name, at)
            assert "damaged" in capsys.readouterr().err, (path.name, at)
        path.write_bytes(whole)

    assert _check(checkpoint) == 0


def test_another_duration_of_ttl_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = _checkpoint(tmp_path, HashMapStateBackend(), ttl=StateTtlConfig(timedelta(days=1)))

    assert _fates(checkpoint, capsys, ttl="StateTtlConfig(timedelta(hours=1))")["pages"]["fate"] == "restored as is"
    assert _fates(checkpoint, capsys, 1)["pages"]["fate"] == "incompatible"
    by_event_time = _fates(checkpoint, capsys, 1, ttl="StateTtlConfig(timedelta(days=1), time=TtlTime.EVENT_TIME)")
    assert by_event_time["pages"]["fate"] == "incompatible"
    assert "has one in event time in the job" in by_event_time["pages"]["reason"]


def test_a_source_position_that_a_restore_refuses_as_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = _checkpoint(tmp_path, HashMapStateBackend(), files={"offsets/../../x": b""})

    assert _check(checkpoint) == 1
    assert "the source position in the checkpoint is damaged" in capsys.readouterr().err


def test_an_operator_that_is_gone_is_refused_unless_its_state_may_go(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(checkpoint, uid="other") == 1
    refused = capsys.readouterr().out
    assert _check(checkpoint, "--allow-non-restored-state", uid="other") == 0
    allowed = capsys.readouterr().out
    assert _check(checkpoint, "-D", "execution.state-recovery.ignore-unclaimed-state=true", uid="other") == 0

    assert refused.count("refused without --allow-non-restored-state") == 3
    assert "the job would not start: 3 of 7 states cannot be restored" in refused
    assert allowed.count("dropped") == 3
    assert allowed.count("new\tstarts empty") == 3


def test_what_becomes_of_each_source_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = HeldSource("clicks", "text", "/clicks", [0], [0])
    moved = HeldSource("words", "text", "/words", [1], [1])
    checkpoint = _checkpoint(tmp_path, HashMapStateBackend(), held=[gone, moved])
    named = PROGRAM.format(**AS_IT_WAS).replace('([("a", 1)])', '([("a", 1)]).uid("words")')

    def told(*options: str) -> tuple[int, list[list[str]]]:
        Path("job.py").write_text(named)
        code = command_line(["check", "job.py", "-s", checkpoint, *options])
        return code, [line.split("\t") for line in capsys.readouterr().out.splitlines() if "\tsource\t" in line]

    code, refused = told()
    assert code == 1
    assert [row[:4] for row in refused] == [
        ["words", "position", "source", "incompatible"],
        ["clicks", "position", "source", "dropped"],
    ]
    assert "it was text(/words) in the checkpoint and is collection in the job" in refused[0][4]
    assert "--source-position words=earliest" in refused[0][4]
    code, allowed = told("-n", "--source-position", "words=earliest")
    assert code == 0
    assert [row[3] for row in allowed] == ["new", "dropped"]
    assert told("--source-position", "nothing=earliest")[0] == 2


def test_functions_find_the_operator_state_they_would_be_restored_with(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(checkpoint, initialize="assert ctx.is_restored and self.offsets.get() == [7]") == 0


def test_an_error_of_the_users_function_is_shown_with_their_frames(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(checkpoint, more="1 / 0") == 1

    err = capsys.readouterr().err
    assert "1 / 0" in err
    assert "in open" in err
    assert "ZeroDivisionError: division by zero" in err.splitlines()[-1]


def test_reading_keyed_state_in_open_is_the_error_it_is_in_a_run(
    checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(checkpoint, more="self.visits.value()") == 2

    assert "outside a keyed context" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "told"),
    [("print('hello')", "does not call env.execute()"), ("import nothing_like_it", "cannot be loaded")],
)
def test_a_file_that_builds_no_job_is_wrong_use(
    program: str, told: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.py").write_text(program)

    assert command_line(["check", "job.py", "-s", checkpoint]) == 2

    assert told in capsys.readouterr().err


def test_a_checkpoint_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert _check("nowhere/chk-1") == 1

    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_gets_a_table_that_cuts_no_word(
    checkpoint: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _check(checkpoint, page="str") == 1
    words = capsys.readouterr().out.split()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))

    assert _check(checkpoint, page="str") == 1

    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    rows = [line.split() for line in plain.splitlines()]
    assert ["keep", "process"] in rows
    assert ["state", "kind", "on", "restore", "why"] in rows
    assert ["visits", "value", "restored", "as", "is"] in rows
    assert any(row[:3] == ["pages", "map", "incompatible"] for row in rows)
    assert set(words) - {"-"} <= set(plain.split())
    assert max(map(len, plain.splitlines())) <= width


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("initialize_state", {"initialize": "1 / 0"}),
        ("open", {"more": "1 / 0"}),
        ("close", {"more": "self.close = lambda: 1 / 0"}),
    ],
)
def test_a_failure_names_the_method_that_failed(
    where: str, changes: dict[str, str], checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _check(checkpoint, **changes) == 1

    assert f"failed in {where}:" in capsys.readouterr().err


WINDOWED_PROGRAM = """
from datetime import timedelta
from checkdam import *

env = StreamExecutionEnvironment.get_execution_environment()
clicks = env.from_collection([("ada", 1, 5_000)]).assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps(lambda click: click[2])
)
windows = clicks.key_by(lambda click: click[0], key_type=str).window({assigner})
windows.{finish}.uid("clicks").print()
env.execute("clicks")
"""


@pytest.fixture(params=BACKENDS)
def open_windows(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A checkpoint with windows of one minute that have not ended."""
    storage, kept = open_storage(str(tmp_path)), CheckpointRetention.RETAIN_ON_CANCELLATION
    checkpoints = CheckpointConfig(timedelta(0), retention=kept, num_retained=9)
    WindowedJob(backend=BACKENDS[request.param], storage=storage).job(checkpoints=checkpoints).run()
    return f"{tmp_path}/{JOB_ID}/chk-2"


def _window_fates(
    checkpoint: str, capsys: pytest.CaptureFixture[str], assigner: str, finish: str = "sum(1)", code: int = 0
) -> dict[str, Any]:
    Path("job.py").write_text(WINDOWED_PROGRAM.format(assigner=assigner, finish=finish))
    # The source of the job that wrote it has another uid: its position is dropped
    assert command_line(["check", "job.py", "-s", checkpoint, "--json", "--allow-non-restored-state"]) == code
    return {
        state["state"]: state for state in json.loads(capsys.readouterr().out)["states"] if state["uid"] == "clicks"
    }


@pytest.mark.parametrize(
    "assigner",
    [
        "TumblingEventTimeWindows(timedelta(minutes=1))",
        "TumblingEventTimeWindows(timedelta(minutes=2))",
        "SlidingEventTimeWindows(timedelta(minutes=5), timedelta(minutes=1))",
    ],
)
def test_windows_of_another_size_are_restored_as_they_are(
    assigner: str, open_windows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fates = _window_fates(open_windows, capsys, assigner)

    assert {name: state["fate"] for name, state in fates.items()} == dict.fromkeys(
        ("window-contents", "_timers/event_window-timers", "_timers/processing_window-timers"), "restored as is"
    )
    assert fates["window-contents"]["reason"] == (
        "windows keep their own bounds; records from now on go to windows of the program's size"
    )


@pytest.mark.parametrize(
    ("assigner", "finish", "told"),
    [
        ("GlobalWindows()", "trigger(CountTrigger(2)).sum(1)", "had windows of type TimeWindow"),
        ("EventTimeSessionWindows(timedelta(minutes=1))", "sum(1)", "has windows that merge (sessions) in the job"),
        ("TumblingEventTimeWindows(timedelta(minutes=1))", "evictor(CountEvictor(2)).sum(1)", "is a list state"),
    ],
)
def test_windows_of_another_kind_or_contents_are_incompatible(
    assigner: str, finish: str, told: str, open_windows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = _window_fates(open_windows, capsys, assigner, finish, code=1)["window-contents"]

    assert contents["fate"] == "incompatible"
    assert told in contents["reason"]
    assert "another uid" in contents["reason"]
