"""Broadcast state, operator lists, timers and filters over HTTP: of a job that runs, and of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.every_state import RULE, EveryState

from checkdam.backends import HashMapStateBackend
from checkdam.cli.state import get_state as state_get
from checkdam.client import StateClient
from checkdam.config import Configuration
from checkdam.errors import RequestRefusedError
from checkdam.server.app.rest_server import RestServer
from checkdam.storage.filesystem import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import JOB_ID

pytestmark = pytest.mark.slow

EPOCHS = [[(RULE, 10), (RULE, 11), ("ada", 12), ("bob", 13)], [(RULE, 14), ("ada", 15), ("eve", 16)]]
RULES = [[10, "rule 10"], [11, "rule 11"], [14, "rule 14"]]


@dataclass
class Served:
    """A job that has done its two epochs, and waits."""

    url: str
    client: StateClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = StateClient(self.url)

    def get(self, path: str) -> Any:
        return self.client._call("GET", f"/jobs/{JOB_ID}{path}")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with RestServer(Configuration.load(None, {"rest.port": "0"})) as server:
        gate = Gate()
        storage = open_storage(str(tmp_path))
        job = EveryState(EPOCHS, HashMapStateBackend(), storage=storage).job(until=gate, host=server)
        job.start()
        job.heard.wait_for_epoch(2)
        job.control.trigger_checkpoint().result(30)
        it = Served(server.url)
        yield it
        it.client.close()
        gate.open()
        job.join()


@pytest.fixture(params=["live", "checkpoint"])
def at(request: pytest.FixtureRequest, served: Served) -> str:
    """Where state is asked for: of the job that runs, and of its last checkpoint."""
    if request.param == "live":
        return ""
    [newest, *_] = served.get("/snapshots")["snapshots"]
    return f"/snapshots/{newest['ref']}"


def test_operators_are_listed_with_all_their_state(served: Served, at: str) -> None:
    told = served.get(f"{at}/state")

    operators = {each["uid"]: each for each in told["operators"]}
    assert operators["everything"]["operator-states"] == [
        {"name": "rules", "mode": "broadcast", "type": "str", "elements": 3, "key-type": "int"}
    ]
    assert {each["name"]: (each["mode"], each["elements"]) for each in operators["buffer"]["operator-states"]} == {
        "records": ("operator list", 7),
        "counts": ("operator union list", 2),
    }
    [timers] = [each for each in operators["everything"]["timers"] if each["entries"]]
    assert (timers["time-domain"], timers["entries"]) == ("event time", 4)
    assert all(state["kind"] != "timer" for each in operators.values() for state in each["states"])


def test_the_rules_in_force_are_told_page_by_page(served: Served, at: str) -> None:
    path = f"{at}/operator-state/everything/rules"

    first = served.get(f"{path}?limit=2")
    second = served.get(f"{path}?limit=2&cursor={first['next']}")

    assert first["epoch"] == second["epoch"] == 2
    assert [[each["key"], each["value"]] for page in (first, second) for each in page["entries"]] == RULES
    assert second["next"] is None


def test_rules_are_found_by_a_filter(served: Served, at: str) -> None:
    found = served.get(f"{at}/operator-state/everything/rules?filter=14&limit=9")

    assert ([each["key"] for each in found["entries"]], found["scanned"], found["next"]) == ([14], 3, None)


def test_elements_of_lists_have_their_subtask(served: Served, at: str) -> None:
    entries: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = served.get(f"{at}/operator-state/buffer/counts?cursor={cursor}")
        entries, cursor = entries + page["entries"], page["next"]

    assert sorted(each["subtask"] for each in entries) == [0, 1]
    assert sum(each["value"][1] for each in entries) == 7


def test_timers_are_told_with_key_and_time(served: Served, at: str) -> None:
    found = served.get(f"{at}/timers/everything?filter=AD")

    assert [(each["key"], each["time-domain"]) for each in found["entries"]] == [("ada", "event time")] * 2
    assert [each["timestamp"] for each in found["entries"]] == [17, 20]


def test_keys_are_found_by_a_filter(served: Served, at: str) -> None:
    found: list[Any] = []
    cursor: str | None = ""
    scanned = 0
    while cursor is not None:
        page = served.get(f"{at}/state/everything/count/keys?filter=%22A&cursor={cursor}")
        found, cursor, scanned = found + page["entries"], page["next"], scanned + page["scanned"]

    assert [(each["key"], each["value"]) for each in found] == [("ada", 2)]
    assert scanned == 3


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/operator-state/everything/count", 404, "count"),
        ("/operator-state/nobody/rules", 404, "nobody"),
        ("/timers/buffer", 404, "buffer"),
        ("/operator-state/everything/rules?filter=" + "x" * 201, 400, "too long"),
        ("/state/everything/count/keys?filter=" + "x" * 201, 400, "too long"),
        ("/timers/everything?limit=0", 400, "limit"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(served: Served, at: str, path: str, status: int, message: str) -> None:
    with pytest.raises(RequestRefusedError, match=message) as refused:
        served.get(at + path)

    assert refused.value.status == status


def test_the_client_reads_operator_state_timers_and_filtered_keys(served: Served) -> None:
    client = served.client

    assert [list(each) for each in client.operator_state(JOB_ID, "everything", "rules")] == RULES
    assert [list(each) for each in client.operator_state(JOB_ID, "everything", "rules", containing="14")] == RULES[2:]
    assert sum(count for _, count in client.operator_state(JOB_ID, "buffer", "counts")) == 7
    assert [each["key"] for each in client.timers(JOB_ID, "everything")] == ["ada", "bob", "ada", "eve"]
    assert dict(client.keys(JOB_ID, "everything", "count", containing="A")) == {"ada": 2}


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["everything", "rules"], ['10  "rule 10"', '11  "rule 11"', '14  "rule 14"', "(3 shown, epoch 2)"]),
        (["everything", "rules", "--limit", "1"], ['10  "rule 10"', "(1 shown, more with --limit, epoch 2)"]),
        (["everything", "count", "--filter", "ada"], ['"ada"  2', "(1 shown, epoch 2)"]),
    ],
)
def test_the_command_lists_a_state_without_a_key(served: Served, arguments: list[str], lines: list[str]) -> None:
    result = CliRunner().invoke(state_get, [JOB_ID[:6], *arguments, "-m", served.url])

    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == lines


def test_the_command_lists_timers(served: Served) -> None:
    result = CliRunner().invoke(state_get, [JOB_ID[:6], "everything", "--timers", "-m", served.url])

    assert [line.split("  ")[1] for line in result.output.splitlines()[:-1]] == ['"ada"', '"bob"', '"ada"', '"eve"']


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], 'no operator "nobody" with state'),
        (["everything"], "NAME is missing"),
        (["everything", "nothing"], 'operator "everything" has no state "nothing"'),
        (["everything", "rules", "--timers"], "Leave NAME out"),
    ],
)
def test_the_command_tells_what_is_wrong(served: Served, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(state_get, [JOB_ID[:6], *arguments, "-m", served.url])

    assert result.exit_code != 0
    assert message in result.output
