from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from checkdam import CheckpointConfig, config
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.launch import Launch
from checkdam.checkpoint.settings import IN_MEMORY, settle_checkpoints
from checkdam.config import Configuration, Origin
from checkdam.errors import ConfigError, StorageError, StorageUncertainError
from checkdam.option_fields import chosen_in_code
from checkdam.runtime.driver_memory import DriverMemoryServer, DriverMemoryStorage, opener
from checkdam.storage.memory_storage import FileTooLargeError, open_memory


@pytest.fixture
def server() -> Iterator[DriverMemoryServer]:
    served = DriverMemoryServer("grpc+tcp://127.0.0.1:0", "memory://driver-memory")
    yield served
    served.close()


def test_what_a_slot_writes_is_in_the_memory_of_the_driver_and_gone_when_it_closes(server: DriverMemoryServer) -> None:
    DriverMemoryStorage(server.access).write("job/shared/f", b"state")

    assert open_memory(f"{server.access.uri}/job").read("shared/f") == b"state"
    server.close()
    assert open_memory(server.access.uri).list("") == []


def test_without_the_token_nothing_is_told(server: DriverMemoryServer) -> None:
    stranger = DriverMemoryStorage(replace(server.access, token="guessed"))

    with pytest.raises(StorageError, match="does not answer"):
        stranger.list("")


@pytest.mark.parametrize("path", ["../f", "/etc/passwd", "a//b"])
def test_a_path_that_leaves_the_tree_is_refused(server: DriverMemoryServer, path: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        DriverMemoryStorage(server.access).write(path, b"")


def test_too_large_a_file_is_refused_before_it_travels(server: DriverMemoryServer) -> None:
    storage = DriverMemoryStorage(replace(server.access, max_state_size=10))

    with pytest.raises(FileTooLargeError, match="11 bytes or more, and memory storage takes at most 10"):
        storage.write("f", b"x" * 11)
    with pytest.raises(FileTooLargeError), storage.open_output("f") as stream:
        stream.write(b"x" * 11)


def test_a_driver_that_is_gone_leaves_it_open_whether_a_write_happened(server: DriverMemoryServer) -> None:
    storage = DriverMemoryStorage(server.access)
    server.close()

    with pytest.raises(StorageUncertainError, match="does not answer"):
        storage.write("f", b"")


def test_a_slot_opens_the_memory_of_its_driver_and_no_other(server: DriverMemoryServer) -> None:
    opened = opener(server.access)

    assert opened(server.access.uri).uri == server.access.uri
    with pytest.raises(ConfigError, match="which slots cannot reach"):
        opened("memory://another")


@pytest.mark.parametrize(
    "settings",
    [
        {"execution.checkpointing.storage": "jobmanager"},
        {"state.checkpoint-storage": "jobmanager"},
        {"state.backend": "jobmanager"},
        {"state.backend": "jobmanager", "state.checkpoints.dir": "file:///data"},
    ],
)
def test_the_settings_put_checkpoints_into_memory(settings: dict[str, str]) -> None:
    held = settle_checkpoints(Configuration.load(None, settings))

    assert held.setting(config.CHECKPOINT_DIR).value == IN_MEMORY
    assert held.setting(config.CHECKPOINT_DIR).origin is Origin.COMMAND_LINE


def test_a_directory_in_code_wins_over_memory_in_the_settings(tmp_path: Path) -> None:
    loaded = Configuration.load(None, {"state.backend": "jobmanager"})

    held = settle_checkpoints(chosen_in_code(loaded, CheckpointConfig(storage="file:///code")))

    assert held.get(config.CHECKPOINT_DIR) == "file:///code"


def test_code_puts_checkpoints_into_memory_and_sets_their_limit() -> None:
    chosen = CheckpointConfig(interval=timedelta(seconds=1), storage="jobmanager", max_state_size="10 mb")

    held = settle_checkpoints(chosen_in_code(Configuration(), chosen))

    assert held.get(config.CHECKPOINT_DIR) == IN_MEMORY
    assert held.get(config.MEMORY_STORAGE_MAX_SIZE) == 10 << 20


def test_a_filesystem_backend_of_flink_1_uses_the_directory() -> None:
    held = settle_checkpoints(
        Configuration.load(None, {"state.backend": "filesystem", "state.checkpoints.dir": "file:///data"})
    )

    assert held.get(config.CHECKPOINT_DIR) == "file:///data"


def test_a_crafted_request_is_an_error_and_no_more(server: DriverMemoryServer) -> None:
    import pyarrow.flight as flight

    storage = DriverMemoryStorage(server.access)
    for body in (b"", b"\xc1", b"\x93\x01\x02\x03"):
        with pytest.raises(pa.ArrowException):
            list(storage._client.do_action(flight.Action("no such verb", body), storage._options))
        (result,) = storage._client.do_action(flight.Action("write", body), storage._options)
        assert b"_Failure" in result.body.to_pybytes()
    assert storage.list("") == []


def test_checkpoints_in_memory_are_full_unless_incremental_ones_are_asked_for() -> None:
    memory = {"execution.checkpointing.storage": "jobmanager"}
    incremental = []
    for settings in (memory, {**memory, "state.backend.incremental": "true"}, {"state.checkpoints.dir": "/data"}):
        environment = StreamExecutionEnvironment(Launch(Configuration.load(None, settings)))
        settled = environment._with_checkpoints(environment.configuration)
        incremental.append(settled.get(config.INCREMENTAL_CHECKPOINTS))

    assert incremental == [False, True, True]
