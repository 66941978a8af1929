"""Window state over HTTP, live and of a checkpoint: by key all windows, one window, and pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.support.askable_slots import AskableSlots
from tests.support.windowed_jobs import BACKENDS, EPOCHS, UID, WindowedJob
from tests.unit.server.made_jobs import COMPLETED, RECORD
from tests.unit.server.serving import Served

from checkdam import TimeWindow
from checkdam.cli.state import get_state as state_get
from checkdam.cli.state_tables import window_text
from checkdam.client import StateClient
from checkdam.clock import SystemClock
from checkdam.config import Configuration
from checkdam.errors import RequestRefusedError
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.job_records import SnapshotKind
from checkdam.server.app.rest_server import RestServer
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import JOB_ID

pytestmark = pytest.mark.slow

FIRST, SECOND = {"start": 0, "end": 60_000}, {"start": 60_000, "end": 120_000}
CONTENTS = "window-contents"


@pytest.fixture(params=[(backend, where) for backend in BACKENDS for where in ("driver", "slots")], ids="-".join)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The server of a job whose last epoch has ended, and whose input has not."""
    gate = Gate()
    backend, where = request.param
    job = WindowedJob(backend=BACKENDS[backend]).job(until=gate)
    monitor = JobMonitor(job.job(), SystemClock())
    job.start()
    job.heard.wait_for_epoch(len(EPOCHS))
    master: Any = job.control
    slots = AskableSlots(master.live_slots)
    live = LiveState(slots if where == "slots" else master.live_slots)
    with RestServer(Configuration.load(None, {"rest.port": "0"})) as server:
        server.job_started(RunningJob(JOB_ID, "clicks", master, live, monitor))
        yield server.url
        slots.close()
        gate.open()
        job.join()


def test_a_running_job_tells_all_windows_of_a_key_or_one(url: str) -> None:
    with StateClient(url) as client:
        found = client.get(JOB_ID, UID, CONTENTS, "ada")
        one = client.get(JOB_ID, UID, CONTENTS, "ada", window=TimeWindow(60_000, 120_000))
        both = client.get_many(JOB_ID, UID, CONTENTS, ["ada", "eve"], window=FIRST)
        listed = {(key, window["end"]): value[1] for (key, window), value in client.keys(JOB_ID, UID, CONTENTS)}
        [operator] = client.states(JOB_ID)

    assert found.value == [[FIRST, ["ada", 13, 5_000]], [SECOND, ["ada", 2, 61_000]]]
    assert one.value == ["ada", 2, 61_000]
    assert [each.value for each in both] == [["ada", 13, 5_000], None]
    assert listed == {("ada", 60_000): 13, ("ada", 120_000): 2, ("bob", 60_000): 1, ("bob", 120_000): 3}
    assert {state["name"]: state["window-type"] for state in operator["states"]} == {CONTENTS: "TimeWindow"}


def test_the_command_line_prints_a_line_for_each_window(url: str) -> None:
    all_windows = CliRunner().invoke(state_get, [JOB_ID, UID, CONTENTS, "ada", "-m", url])
    one = CliRunner().invoke(
        state_get, [JOB_ID, UID, CONTENTS, "ada", "--window", '{"start": 0, "end": 60000}', "-m", url]
    )

    assert all_windows.output.splitlines()[:2] == [
        f'{window_text({"start": 0, "end": 60_000})}  ["ada", 13, 5000]',
        f'{window_text({"start": 60_000, "end": 120_000})}  ["ada", 2, 61000]',
    ]
    assert one.output.startswith('["ada", 13, 5000]  (epoch')


TIMERS = [("ada", FIRST, 59_999), ("bob", FIRST, 59_999), ("ada", SECOND, 119_999), ("bob", SECOND, 119_999)]


def test_timers_of_a_running_job_have_their_window(url: str) -> None:
    with StateClient(url) as client:
        found = client.timers(JOB_ID, UID)

    shown = [(each["key"], each["window"], each["timestamp"]) for each in found]
    assert sorted(shown, key=lambda timer: (timer[2], timer[0])) == TIMERS


def test_the_command_line_lists_entries_and_timers_with_their_window(url: str) -> None:
    entries = CliRunner().invoke(state_get, [JOB_ID, UID, CONTENTS, "--filter", "ada", "-m", url])
    timers = CliRunner().invoke(state_get, [JOB_ID, UID, "--timers", "-m", url])

    assert sorted(entries.output.splitlines()[:-1]) == [
        f'"ada"  {window_text(FIRST)}  ["ada", 13, 5000]',
        f'"ada"  {window_text(SECOND)}  ["ada", 2, 61000]',
    ]
    assert {tuple(line.split("  ")[1:]) for line in timers.output.splitlines()[:-1]} == {
        (f'"{key}"', window_text(window)) for key, window, _ in TIMERS
    }


def test_what_is_no_window_is_refused(url: str) -> None:
    with StateClient(url) as client, pytest.raises(RequestRefusedError, match="TimeWindow"):
        client.get(JOB_ID, UID, CONTENTS, "ada", window="noon")


def test_a_checkpoint_tells_the_same(served: Served, tmp_path: Path) -> None:
    WindowedJob(storage=open_storage(str(tmp_path))).job().run()
    path = f"{tmp_path}/{JOB_ID}/chk-3"
    known = msgspec.structs.replace(COMPLETED, id=3, epoch=3, kind=SnapshotKind.CHECKPOINT, path=path)
    served.tells(msgspec.structs.replace(RECORD, checkpoints=(known,), savepoints=()))
    state = f"/snapshots/chk-3/state/{UID}/{CONTENTS}"

    found = served.of_job(state, key="ada")
    assert (found["found"], found["by-window"]) == (True, True)
    assert sorted(found["value"], key=repr) == [[FIRST, ["ada", 13, 5_000]], [SECOND, ["ada", 2, 61_000]]]
    one = served.of_job(state, key="ada", window='{"start": 60000, "end": 120000}')
    assert (one["value"], one["window"]) == (["ada", 2, 61_000], SECOND)
    assert not served.of_job(state, key="ada", window='{"start": 1, "end": 2}')["found"]
    page = served.of_job(state + "/keys", limit="3")
    assert len(page["entries"]) == 3
    rest = served.of_job(state + "/keys", limit="3", cursor=page["next"])
    listed = {(each["key"], each["window"]["end"]): each["value"][1] for each in page["entries"] + rest["entries"]}
    assert listed == {("ada", 60_000): 13, ("ada", 120_000): 2, ("bob", 60_000): 1, ("bob", 120_000): 3}
    timers = served.of_job(f"/snapshots/chk-3/timers/{UID}")["entries"]
    assert sorted((each["timestamp"], each["key"], each["window"]["end"]) for each in timers) == [
        (time, key, window["end"]) for key, window, time in TIMERS
    ]
    [operator] = [each for each in served.of_job("/snapshots/chk-3/state")["operators"] if each["uid"] == UID]
    assert {state["name"]: state["window-type"] for state in operator["states"]} == {CONTENTS: "TimeWindow"}
