"""Live state over HTTP, through the real server, application and client, of a job held in the middle of an epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.askable_slots import AskableSlots

from checkdam import register_type
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.cli.state import get_state as state_get
from checkdam.client import StateAnswer, StateClient
from checkdam.clock import SystemClock
from checkdam.config import Configuration
from checkdam.errors import RequestRefusedError, ServerUnreachableError
from checkdam.graph.contexts import ProcessContext, RuntimeContext
from checkdam.graph.functions import KeyedProcessFunction
from checkdam.runtime.job_control import RunningJob
from checkdam.runtime.live_state.state_queries import LiveState
from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.server.app.rest_server import RestServer
from checkdam.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from checkdam.testing import MemoryStorage
from checkdam.testing.local_engine import LocalEngine
from checkdam.testing.local_job import JOB_ID, LocalJob
from checkdam.testing.trouble import Moment, Step, Trouble, signal, wait_for

pytestmark = pytest.mark.slow

WORDS = [f"w{number}" for number in range(30)]


class Count(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", int, default=0))
        self.lengths = ctx.get_map_state(MapStateDescriptor("lengths", int, list[str]))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        self.count.update(self.count.value() + 1)
        self.lengths[len(value)] = [value]
        yield value


@dataclass(frozen=True)
class Spelled:
    word: str


register_type(Spelled, to=lambda key: key.word, from_=Spelled, schema=str, immutable=True)


class Last(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.last = ctx.get_state(ValueStateDescriptor("last", Spelled))

    def process_element(self, value: str, ctx: ProcessContext[Spelled]) -> None:
        self.last.update(ctx.current_key)


def build(environment: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
    stream.key_by(Spelled, key_type=Spelled).process(Last(), output_type=str).uid("z/last").print()
    stream.key_by(lambda word: word, key_type=str).process(Count(), output_type=str).uid("a/count").print()


@dataclass
class Served:
    """A job that has done its first epoch, waits in the middle of the second until it is let go, and then again."""

    url: str
    job: LocalJob
    go_on: threading.Event
    has_ended: threading.Event
    live: LiveState
    server: RestServer
    slots: AskableSlots
    client: StateClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = StateClient(self.url)

    def get(self, path: str) -> Any:
        return self.client._call("GET", f"/jobs/{JOB_ID}/state{path}")


@pytest.fixture(params=[False, True], ids=["through the driver", "in the slots"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    reached, asked, go_on, has_ended, end = (threading.Event() for _ in range(5))

    def stay(engine: LocalEngine, moment: Moment) -> None:
        has_ended.set()
        wait_for(end)(engine, moment)

    troubles = [
        Trouble(Step.BEFORE_EPOCH, wait_for(asked), number=2),
        Trouble(Step.AFTER_LEVEL, signal(reached), number=2, subtask=0),
        Trouble(Step.AFTER_LEVEL, wait_for(go_on), number=2, subtask=1),
        Trouble(Step.BEFORE_EPOCH, stay, number=3),
    ]
    job = LocalJob(build, [WORDS, WORDS, []], MemoryStorage(), record_type=str, troubles=troubles)
    monitor = JobMonitor(job.job(), SystemClock())
    job.start()
    master: Any = job.control
    slots = AskableSlots(master.live_slots)
    live = LiveState(slots if request.param else master.live_slots)
    live.states()  # from here on each epoch is published
    asked.set()
    assert reached.wait(30)
    with RestServer(Configuration.load(None, {"rest.port": "0"})) as server:
        server.job_started(RunningJob(JOB_ID, "words", master, live, monitor))
        held = Served(server.url, job, go_on, has_ended, live, server, slots)
        yield held
        held.client.close()
        slots.close()
        go_on.set()
        end.set()
        job.join()


def test_a_key_is_told_as_of_the_last_whole_epoch(served: Served) -> None:
    answer = served.client.get(JOB_ID, "a/count", "count", "w7")

    assert answer == StateAnswer(1, "w7", found=True, value=1, key_group=answer.key_group, subtask=answer.subtask)
    assert answer.subtask == answer.key_group * 2 // 128


def test_keys_of_a_registered_class_are_told_in_their_form(served: Served) -> None:
    [entry] = served.get("/z%2Flast/last/keys?limit=1")["entries"]

    answer = served.client.get(JOB_ID, "z/last", "last", entry["key"])

    assert entry["key"] == entry["value"] == answer.key == answer.value
    assert entry["key"] in WORDS


@pytest.mark.parametrize("served", [True], indirect=True, ids=["in the slots"])
def test_keys_are_asked_for_in_the_slots_that_own_them(served: Served) -> None:
    one = served.client.get(JOB_ID, "a/count", "count", "w7")
    many = served.client.get_many(JOB_ID, "a/count", "lengths", WORDS)
    with StateClient(served.url, asks_slots=False) as over_http:
        same = over_http.get_many(JOB_ID, "a/count", "lengths", WORDS)
        assert over_http.get(JOB_ID, "a/count", "count", "w7") == one

    assert many == same
    assert served.slots.messages == 3  # one key of one slot, and many of both


def test_the_server_tells_where_the_slots_of_a_state_are(served: Served) -> None:
    told = served.get("/a%2Fcount/lengths/slots")

    shape = {key: told[key] for key in ("key-type", "kind", "map-key-type", "parallelism", "max-parallelism", "ttl")}
    assert shape == {
        "key-type": '"str"',
        "kind": "map",
        "map-key-type": '"int"',
        "parallelism": 2,
        "max-parallelism": 128,
        "ttl": False,
    }
    ways = next(iter(served.slots.servers.values()), [])
    assert len(told["slots"]) == len(ways)
    assert (told["token"] is None) == (not ways)


@pytest.mark.parametrize("served", [True], indirect=True, ids=["in the slots"])
def test_slots_that_are_gone_are_not_missed(served: Served) -> None:
    served.client.get(JOB_ID, "a/count", "count", "w7")
    for server in next(iter(served.slots.servers.values())):
        server.close()
    asked = served.slots.messages

    answers = served.client.get_many(JOB_ID, "a/count", "count", WORDS)

    assert {answer.value for answer in answers} == {1}
    assert served.slots.messages == asked


def test_a_missing_key_is_no_error(served: Served) -> None:
    answer = served.client.get(JOB_ID, "a/count", "count", "nowhere")

    assert (answer.found, answer.value) == (False, None)


@pytest.mark.parametrize("text", ["w7", "%22w7%22"])
def test_a_bare_word_is_a_key_where_keys_are_text(served: Served, text: str) -> None:
    assert served.get(f"/a%2Fcount/count?key={text}")["value"] == 1


def test_many_keys_are_told_in_their_order(served: Served) -> None:
    answers = served.client.get_many(JOB_ID, "a/count", "count", [*WORDS, "nowhere"])

    assert [answer.key for answer in answers] == [*WORDS, "nowhere"]
    assert [answer.value for answer in answers] == [1] * len(WORDS) + [None]
    assert {answer.subtask for answer in answers} == {0, 1}


def test_entries_of_a_map_are_told_together_or_one_alone(served: Served) -> None:
    whole = served.client.get(JOB_ID, "a/count", "lengths", "w7")
    one = served.client.get(JOB_ID, "a/count", "lengths", "w7", map_key=2)
    none = served.client.get(JOB_ID, "a/count", "lengths", "w7", map_key=3)

    assert whole.value == one.value == [[2, ["w7"]]]
    assert not none.found


def test_states_are_listed_with_their_types(served: Served) -> None:
    operator, other = sorted(served.client.states(JOB_ID), key=lambda each: str(each["uid"]))

    assert (operator["uid"], operator["parallelism"], operator["max-parallelism"]) == ("a/count", 2, 128)
    common = {"key-type": "str", "entries": 30, "keys": 30, "ttl": False}
    assert operator["states"] == [
        {"name": "count", "kind": "value", "type": "int", **common},
        {"name": "lengths", "kind": "map", "type": "list[str]", "map-key-type": "int", **common},
    ]
    assert [(each["key-type"], each["type"]) for each in other["states"]] == [("Spelled", "str")]


def test_keys_are_read_page_by_page(served: Served) -> None:
    page = served.get("/a%2Fcount/count/keys?limit=4")

    assert len(page["entries"]) == 4
    assert page["next"] is not None
    assert dict(served.client.keys(JOB_ID, "a/count", "count")) == dict.fromkeys(WORDS, 1)


def test_when_the_epoch_ends_the_next_one_is_told(served: Served) -> None:
    served.go_on.set()
    assert served.has_ended.wait(30)

    answer = served.client.get(JOB_ID, "a/count", "count", "w7")

    assert (answer.epoch, answer.value) == (2, 2)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/nobody/count?key=w", 404, 'the job has no operator "nobody" with keyed state. It has "a/count", "z/last".'),
        (
            "/a%2Fcount/nothing?key=w",
            404,
            'operator "a/count" has no keyed state "nothing". It has "count", "lengths".',
        ),
        ("/a%2Fcount/lengths?key=w7&map-key=x", 400, "'x' is not a key of type int. Write it as JSON, like 42."),
        ("/a%2Fcount/count?key=w7&map-key=1", 404, 'state "count" of operator "a/count" is no map. Ask for it without'),
        ("/a%2Fcount/count", 400, "Missing mandatory query parameter (key)"),
        ("/a%2Fcount/count/keys?cursor=x", 404, 'there is no page "x". Begin without a cursor.'),
        ("/a%2Fcount/count/keys?limit=0", 400, "limit"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(served: Served, path: str, status: int, message: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        served.get(path)

    assert refused.value.status == status
    assert message in str(refused.value)


def test_an_unknown_job_is_told_to_be_unknown(served: Served) -> None:
    with pytest.raises(RequestRefusedError, match="not found") as refused:
        served.client.get("ab" * 16, "a/count", "count", "w7")

    assert refused.value.status == 404


def test_a_job_is_found_by_its_name(served: Served) -> None:
    name = served.server.jobs.record(JOB_ID).name

    assert served.client.get(name, "a/count", "count", "w7").value == 1
    with pytest.raises(RequestRefusedError, match='there is no job called "other"'):
        served.client.get("other", "a/count", "count", "w7")


def test_while_the_job_fails_over_asking_again_is_the_advice(served: Served) -> None:
    served.live._live = lambda: None

    with pytest.raises(RequestRefusedError, match="ask again") as refused:
        served.client.get(JOB_ID, "a/count", "count", "w7")

    assert refused.value.status == 503


def test_calls_after_each_other_share_a_connection_also_when_one_is_refused(served: Served) -> None:
    served.client.get(JOB_ID, "a/count", "count", "w7")
    [first] = served.client._idle
    opened = first.sock

    with pytest.raises(RequestRefusedError):
        served.client.get(JOB_ID, "nobody", "count", "w7")
    served.client.get_many(JOB_ID, "a/count", "count", ["w7"])

    assert served.client._idle == [first]
    assert first.sock is opened


def test_a_connection_that_the_server_has_closed_is_opened_again(served: Served) -> None:
    served.client.get(JOB_ID, "a/count", "count", "w7")
    [connection] = served.client._idle
    connection.sock.shutdown(2)

    assert served.client.get(JOB_ID, "a/count", "count", "w7").value == 1


def test_nobody_there_is_told(served: Served) -> None:
    with pytest.raises(ServerUnreachableError):
        StateClient("127.0.0.1:9").get(JOB_ID, "a/count", "count", "w7")


def test_many_ask_at_once_and_each_gets_its_own_answer(served: Served) -> None:
    wrong: list[Any] = []

    def ask(words: list[str]) -> None:
        for word in words:
            answer = served.client.get(JOB_ID, "a/count", "lengths", word)
            if answer.key != word or answer.value != [[len(word), [word]]]:
                wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(WORDS[number:] + WORDS[:number],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not wrong


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["count", "w7"], "1  (epoch 1, key group"),
        (["count", "nowhere"], "no value  (epoch 1, key group"),
        (["lengths", "w7", "--map-key", "2"], '[[2, ["w7"]]]  (epoch 1'),
        (["count", "w7", "--json"], '"found": true'),
    ],
)
def test_the_command_tells_what_a_key_holds(served: Served, arguments: list[str], output: str) -> None:
    result = CliRunner().invoke(state_get, [JOB_ID[:6], "a/count", *arguments, "-m", served.url])

    assert result.exit_code == 0, result.output
    assert output in result.output


def test_the_command_tells_what_is_wrong(served: Served) -> None:
    result = CliRunner().invoke(state_get, [JOB_ID[:6], "nobody", "count", "w7", "-m", served.url])

    assert result.exit_code == 1
    assert 'the job has no operator "nobody"' in result.output
