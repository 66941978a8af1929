from __future__ import annotations

import socket
import threading
from datetime import timedelta

import httpx
import pytest
from tests.unit.server.made_jobs import JOB, RECORD, AskedControl, MadeArchive, running_job
from tests.unit.server.serving import Served

from checkdam.config import Configuration
from checkdam.errors import CheckdamError, ConfigError
from checkdam.server.app.rest_server import RestServer, candidate_ports, listen


def test_a_second_server_takes_the_next_free_port() -> None:
    with RestServer(Configuration().with_value("rest.port", 0)) as first:
        second = RestServer(Configuration().with_value("rest.port", first.port))
        with second:
            assert second.port > first.port
            assert httpx.get(f"{second.url}/config").status_code == 200


def test_after_close_nobody_listens() -> None:
    server = RestServer(Configuration().with_value("rest.port", 0))
    server.start()
    server.close()

    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://localhost:{server.port}/config")


def test_close_without_start_and_twice_is_no_error() -> None:
    server = RestServer(Configuration().with_value("rest.port", 0))
    server.close()
    server.start()
    server.close()
    server.close()


def test_close_waits_until_a_client_has_had_its_savepoint() -> None:
    control = AskedControl()
    server = RestServer(Configuration().with_value("rest.port", 0))
    server.start()
    server.job_started(running_job(control=control))
    trigger = httpx.post(f"{server.url}/jobs/{JOB}/stop", json={}).json()["request-id"]
    control.futures[0].set_result("/sp/one")
    server.job_ended(JOB)

    closing = threading.Thread(target=lambda: server.close(timedelta(seconds=60)))
    closing.start()
    answer = httpx.get(f"{server.url}/jobs/{JOB}/savepoints/{trigger}")
    closing.join(30)

    assert answer.json()["operation"] == {"location": "/sp/one"}
    assert not closing.is_alive()


@pytest.mark.parametrize("is_here", [True, False])
def test_only_pages_that_show_a_job_of_this_process_are_waited_for(is_here: bool) -> None:
    with RestServer(Configuration().with_value("rest.port", 0), MadeArchive({JOB: RECORD})) as server:
        if is_here:
            server.job_started(running_job())

        shown = httpx.get(f"{server.url}/jobs/{JOB}", params={"viewer": "a page"}).json()["state"]

        assert shown == "RUNNING"
        assert server.jobs.viewers.wait_until_told(0) is not is_here
        server.close(timedelta(0))


def test_the_address_is_the_one_clients_are_told() -> None:
    server = RestServer(Configuration().with_value("rest.port", 0).with_value("rest.address", "jobs.example"))

    assert server.url == "http://jobs.example:0"


def test_a_server_that_listens_everywhere_says_how_others_reach_it() -> None:
    everywhere = Configuration().with_value("rest.port", 0).with_value("rest.bind-address", "0.0.0.0")
    with RestServer(everywhere.with_value("rest.auth.token", "t")) as server:
        others = server.urls_for_others
        assert server.url == f"http://localhost:{server.port}"
        assert f"http://{socket.gethostname().lower()}:{server.port}" in others
        addresses = [url for url in others if url.removeprefix("http://")[0].isdigit()]
        answers = [httpx.get(f"{url}/jobs", headers={"Authorization": "Bearer t"}) for url in addresses]

    assert [answer.status_code for answer in answers] == [200] * len(addresses)
    assert not any("127.0.0.1" in url for url in others)


def test_a_server_on_loopback_or_with_a_name_of_its_own_has_no_other_addresses() -> None:
    with RestServer(Configuration().with_value("rest.port", 0)) as server:
        assert server.urls_for_others == []
    named = Configuration().with_value("rest.bind-address", "0.0.0.0").with_value("rest.address", "jobs.example")
    assert RestServer(named).urls_for_others == []


def test_head_is_answered_without_a_body(served: Served) -> None:
    answer = served.client.head("/overview")

    assert (answer.status_code, answer.content) == (200, b"")


def test_the_overview_leaves_out_what_is_zero_and_counts_slots(served: Served) -> None:
    body = served.get("/overview")

    assert {name: body[name] for name in ("taskmanagers", "slots-total", "slots-available", "jobs-running")} == {
        "taskmanagers": 2,
        "slots-total": 2,
        "slots-available": 0,
        "jobs-running": 1,
    }
    assert "taskmanagers-blocked" not in body
    assert body["flink-version"].startswith("2.3")


def test_secrets_are_not_shown() -> None:
    configuration = Configuration().with_value("rest.auth.token", "hidden-word").with_value("rest.port", 0)
    with RestServer(configuration.with_value("spark.my.password", "other-word")) as server:
        answer = httpx.get(f"{server.url}/jobmanager/config", headers={"Authorization": "Bearer hidden-word"})

    assert {"key": "rest.auth.token", "value": "******"} in answer.json()
    assert "hidden-word" not in answer.text
    assert "other-word" not in answer.text


def test_the_page_hears_how_often_to_ask(served: Served) -> None:
    body = served.get("/config")

    assert body["refresh-interval"] == 3000
    assert body["features"] == {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False}


def test_threads_are_told_by_name(served: Served) -> None:
    infos = served.get("/jobmanager/thread-dump")["threadInfos"]
    lite = served.get("/jobmanager/thread-dump", mode="lite")["threadInfos"]

    main = next(info for info in infos if info["threadName"] == "MainThread")
    assert "test_threads_are_told_by_name" in main["stringifiedThreadInfo"]
    assert all("File" not in info["stringifiedThreadInfo"] for info in lite)


def test_a_slot_is_a_task_manager(served: Served) -> None:
    first, second = served.get("/taskmanagers")["taskmanagers"]
    details = served.get(f"/taskmanagers/{first['id']}")

    assert (first["id"], first["dataPort"], first["slotsNumber"], first["assignedTasks"]) == ("host:11", 4000, 1, 2)
    assert (second["pid"], second["subtask"], second["jobId"]) == (12, 1, JOB)
    assert details["metrics"]["heapUsed"] == 50 << 20
    assert [slot["jobId"] for slot in details["allocatedSlots"]] == [JOB]
    assert "blocked" not in first


def test_the_slots_of_a_job_that_ended_are_gone(served: Served) -> None:
    served.server.job_ended(JOB)

    assert served.get("/taskmanagers") == {"taskmanagers": []}


def test_rest_port_means_it_or_the_next_free_one() -> None:
    assert candidate_ports(Configuration())[:3] == [8081, 8082, 8083]
    assert candidate_ports(Configuration().with_value("rest.port", 65535)) == [65535]


def test_bind_port_says_exactly_which_ports() -> None:
    configuration = Configuration().with_value("rest.bind-port", "8081, 8085-8087")

    assert candidate_ports(configuration) == [8081, 8085, 8086, 8087]


@pytest.mark.parametrize("text", ["web", "8081-", "8090-8085", "70000", "1,,2", "8081;8082"])
def test_what_is_no_list_of_ports_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"rest\.bind-port"):
        candidate_ports(Configuration().with_value("rest.bind-port", text))


def test_a_port_that_is_taken_is_passed_over() -> None:
    with listen("localhost", [0]) as first:
        taken = first.getsockname()[1]
        with listen("localhost", [taken, 0]) as second:
            assert second.getsockname()[1] != taken


def test_no_free_port_is_told_with_what_was_tried() -> None:
    with listen("localhost", [0]) as first:
        taken = first.getsockname()[1]
        with pytest.raises(CheckdamError, match=f"tried {taken}"):
            listen("localhost", [taken])


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("localhost", [0]) as found:
        assert found.proto == socket.IPPROTO_TCP  # asyncio turns Nagle's algorithm off only where it sees this
