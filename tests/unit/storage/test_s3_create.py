"""Exclusive creation on S3, against a server on loopback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from moto.server import ThreadedMotoServer

from checkdam.checkpoint.ownership import take
from checkdam.errors import FencedError, StorageUncertainError
from checkdam.ids import JobId
from checkdam.storage.contract import Storage, create_once
from checkdam.storage.filesystem import open_storage
from checkdam.storage.s3_create import exclusive_create

pytestmark = pytest.mark.slow

JOB = JobId("a" * 32)


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedMotoServer]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server
    server.stop()


def uri(server: ThreadedMotoServer) -> str:
    host, port = server.get_host_and_port()
    endpoint = f"scheme=http&endpoint_override={host}:{port}&region=us-east-1&allow_bucket_creation=true"
    return f"s3://key:secret@bucket/some/root?{endpoint}"


@pytest.fixture
def storage(server: ThreadedMotoServer) -> Storage:
    storage = open_storage(uri(server))
    storage.check_writable()
    storage.delete_directory("")
    return storage


def test_an_object_is_created_and_never_replaced(storage: Storage) -> None:
    storage.write_new("d/f", b"first")

    with pytest.raises(FileExistsError):
        storage.write_new("d/f", b"second")

    assert [(each.path, storage.read(each.path)) for each in storage.list("")] == [("d/f", b"first")]


def test_of_many_writers_one_creates_the_object(storage: Storage) -> None:
    def create(number: int) -> bool:
        try:
            storage.write_new("f", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as writers:
        created = list(writers.map(create, range(8)))

    assert created.count(True) == 1
    assert storage.read("f") == str(created.index(True)).encode()


def test_creating_the_same_content_again_is_a_lost_reply(storage: Storage) -> None:
    create_once(storage, "f", b"mine")
    create_once(storage, "f", b"mine")

    with pytest.raises(FileExistsError):
        create_once(storage, "f", b"another's")


def test_a_server_that_does_not_answer_leaves_it_uncertain() -> None:
    create = exclusive_create("s3://key:secret@bucket?scheme=http&endpoint_override=127.0.0.1:9", "here", max_retries=0)
    assert create is not None

    with pytest.raises(StorageUncertainError, match='cannot write "f"'):
        create("f", b"")


def test_a_job_on_s3_has_one_owner(storage: Storage) -> None:
    first = take(storage, JOB)
    first.check()

    second = take(storage, JOB, take_over=True)

    second.check()
    with pytest.raises(FencedError):
        first.check()
