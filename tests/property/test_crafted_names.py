"""Whatever names a snapshot holds, nothing outside the directories it is given is created, changed or deleted.

Real snapshots are taken apart, one text in them is replaced, and they are put together again under valid checksums.
Readers refuse them with Checkdam's own errors, or read them as if the name were good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.every_state import EveryState
from tests.support.examples import examples

from checkdam.backends import HashMapStateBackend, KeyedStateBackend, RocksDBStateBackend, StoreOwner
from checkdam.checkpoint.checkpoint_store import CheckpointStore, find_latest, load_checkpoint
from checkdam.checkpoint.savepoints import dispose
from checkdam.checkpoint.settings import RestoreMode
from checkdam.cli.inspect import look_into
from checkdam.connectors.file_sink import FileCommitter, PartFile
from checkdam.errors import CheckdamError
from checkdam.flink.metadata import Metadata, decode, encode
from checkdam.flink.state_handles import RelativeFileHandle
from checkdam.ids import Attempt, OperatorUid, SubtaskIndex
from checkdam.runtime.driver.outputs import Outputs
from checkdam.runtime.driver.publish_history import PUBLISHED
from checkdam.runtime.driver.restore import from_path
from checkdam.runtime.monitor.job_events import JobListener
from checkdam.runtime.source_position import (
    VERSION,
    HeldSource,
    SourcePosition,
    decode_position,
    encode_position,
)
from checkdam.runtime.spark.offsets import Streams, lay_out
from checkdam.state.snapshot_handles import SavepointFormat
from checkdam.state_reader import Savepoint
from checkdam.state_reader.flink_snapshot import describe_flink_snapshot
from checkdam.storage import open_storage
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import JOB_ID
from checkdam.types.type_info import type_info

FLINK = sorted((Path(__file__).parent.parent / "compat" / "data" / "flink").iterdir())
EPOCHS = [[("a", 1), ("b", 2), ("rule", 1)], [("a", 3), ("c", 4)]]
BACKENDS: dict[str, KeyedStateBackend] = {"hashmap": HashMapStateBackend(), "rocksdb": RocksDBStateBackend("16 MB")}
OUTSIDE = "{outside}"  # stands for the absolute path of a directory that is nobody's business

parts = st.sampled_from(
    ["..", ".", "", "a", "link", "letter", "shared", "_metadata", OUTSIDE, "~", "\0", "\ud800", "x" * 300]
)
names = st.one_of(st.lists(parts, min_size=1, max_size=6).map("/".join), st.text(max_size=20))


class World:
    """A directory in which a snapshot lies beside what must stay as it is, with links from the one to the other."""

    def __init__(self, directory: Path) -> None:
        self.outside = directory / "outside"
        self.place = directory / "place"
        self.work = directory / "work"
        for each in (self.outside, self.place, self.work):
            each.mkdir()
        (self.outside / "letter").write_text("dear")
        self._directory = directory

    def put(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).write_bytes(data)
        for each in (self.place, *filter(Path.is_dir, self.place.rglob("*"))):
            (each / "link").symlink_to(self.outside)

    def check(self) -> None:
        assert {each.name: each.read_text() for each in self.outside.iterdir()} == {"letter": "dear"}
        assert {each.name for each in self._directory.iterdir()} <= {"outside", "place", "work"}

    def contents(self) -> dict[str, bytes]:
        return {str(each): each.read_bytes() for each in self.place.rglob("*") if each.is_file()}


@contextlib.contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as directory:
        made = World(Path(directory))
        yield made
        made.check()


def only_own_errors(act: Callable[[], object]) -> None:
    with contextlib.suppress(CheckdamError):
        act()


# ---------------------------------------------------------------------------------------------- real snapshots


@cache
def taken(backend: str, format: SavepointFormat | None) -> dict[str, bytes]:
    """The files of a real savepoint, or of the checkpoints of a job (`format` None), by their paths."""
    every, gate = EveryState(EPOCHS, BACKENDS[backend]), Gate()
    if format is None:
        every.job().run()
        return {each.path: every.storage.read(each.path) for each in every.storage.list(JOB_ID)}
    with tempfile.TemporaryDirectory() as directory:
        job = every.job(until=gate)
        control = job.start()
        job.heard.wait_for_epoch(len(EPOCHS))
        place = open_storage(control.stop_with_savepoint(directory, format, drain=False).result(60))
        job.join()
        return {f"savepoint/{each.path}": place.read(each.path) for each in place.list("")}


class Rewriting:
    """Counts the texts of a snapshot, and puts a name in the place of one of them."""

    def __init__(self, chosen: int = -1, name: str = "") -> None:
        self._chosen = chosen
        self._name = name
        self.count = 0

    def files(self, files: dict[str, bytes]) -> dict[str, bytes]:
        metadata = [path for path in files if path.endswith("_metadata")]
        rewritten = {path: self._file(data) for path, data in files.items() if path not in metadata}
        sizes = {path.rpartition("/")[2]: len(data) for path, data in rewritten.items()}
        return rewritten | {path: self._metadata(files[path], sizes) for path in metadata}

    def _file(self, data: bytes) -> bytes:
        """A state file of ours, with another footer or header."""
        if data.startswith(b"CHECKDAM"):
            length = int.from_bytes(data[-20:-16], "big")
            footer = self.packed(data[-20 - length : -20])
            checksum = xxhash.xxh3_64_intdigest(data[:12] + footer + len(footer).to_bytes(4, "big"))
            return data[: -20 - length] + footer + struct.pack(">IQ", len(footer), checksum) + data[-8:]
        if data.startswith(b"CDROCKSD"):
            content = data[:12] + self.packed(data[12:-8])
            return content + xxhash.xxh3_64_digest(content)
        if data.startswith(b"CDOPSTAT"):
            length = int.from_bytes(data[12:16], "big")
            header = self.packed(data[16 : 16 + length])
            content = data[:12] + len(header).to_bytes(4, "big") + header + data[16 + length : -8]
            return content + xxhash.xxh3_64_digest(content)
        return data  # a table of RocksDB's

    def _metadata(self, data: bytes, sizes: dict[str, int]) -> bytes:
        def resized(value: Any) -> Any:
            if isinstance(value, RelativeFileHandle) and value.name.rpartition("/")[2] in sizes:
                value = dataclasses.replace(value, size=sizes[value.name.rpartition("/")[2]])
            return value

        rewritten: Metadata = self.value(decode(data), resized)
        return sealed(rewritten)

    def packed(self, data: bytes) -> bytes:
        return msgspec.msgpack.encode(self.value(msgspec.msgpack.decode(data), bytes_too=False))

    def value(self, value: Any, first: Callable[[Any], Any] = lambda value: value, *, bytes_too: bool = True) -> Any:
        """The same with one text in it replaced, also inside bytes that are msgpack."""
        value = first(value)
        again = partial(self.value, first=first, bytes_too=bytes_too)
        match value:
            case str():
                self.count += 1
                return self._name if self.count - 1 == self._chosen else value
            case dict():
                return {again(key): again(each) for key, each in value.items()}
            case list() | tuple():
                return type(value)(map(again, value))
            case bytes() if bytes_too:
                return self._inner(value)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = {field.name: again(getattr(value, field.name)) for field in dataclasses.fields(value)}
                return dataclasses.replace(value, **fields)
        return value

    def _inner(self, data: bytes) -> bytes:
        try:
            inner = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError):
            return data
        return msgspec.msgpack.encode(self.value(inner)) if isinstance(inner, dict | list) else data


class Damaging(Rewriting):
    """Puts other bytes into one of the msgpack parts of a snapshot."""

    def __init__(self, chosen: int = -1, at: int = 0, inserted: bytes = b"") -> None:
        super().__init__()
        self._part = chosen
        self._at = at
        self._inserted = inserted
        self.parts = 0

    def packed(self, data: bytes) -> bytes:
        self.parts += 1
        if self.parts - 1 != self._part:
            return data
        at = self._at % len(data)
        return (data[:at] + self._inserted + data[at + len(self._inserted) :])[: len(data)]

    def _inner(self, data: bytes) -> bytes:
        return self.packed(data) if data else data


def sealed(metadata: Metadata) -> bytes:
    """A file with a valid checksum, if it has one at all."""
    data = encode(metadata)
    at = data.find(b"checkdam-digest")
    if at < 0:
        return data
    at += len("checkdam-digest") + 4
    empty = data[:at] + bytes(8) + data[at + 8 :]
    return data[:at] + xxhash.xxh3_64_digest(empty) + data[at + 8 :]


@cache
def number_of_texts(backend: str, format: SavepointFormat | None) -> int:
    rewriting = Rewriting()
    rewriting.files(taken(backend, format))
    return rewriting.count


# ---------------------------------------------------------------------------------------------- what is done with them


def read_everything(path: str) -> None:
    savepoint = Savepoint.load(path)
    for operator in savepoint.operators:
        for state in savepoint.states(operator.uid):
            for _ in savepoint.content_of(state):
                pass


def restore_everything(path: str, backend: str, work: Path) -> None:
    """What slots do with the keyed state."""
    checkpoint, directory = load_checkpoint(path)
    for entry in checkpoint.operators:
        for handle in entry.subtasks.values():
            owner = StoreOwner(
                entry.uid,
                SubtaskIndex(0),
                Attempt("crafted"),
                handle.key_groups,
                entry.max_parallelism,
                type_info(str),
                lambda: Path(tempfile.mkdtemp(dir=work)),
            )
            store = BACKENDS[backend].open(owner, [handle], open_storage(directory), claim=False)
            store.close()


READ_ONLY: dict[str, Callable[[str], object]] = {
    "inspect": lambda path: look_into(path, in_full=True),
    "read": read_everything,
    "restore": lambda path: from_path(path),
    "claim": lambda path: from_path(path, RestoreMode.CLAIM),
}


def try_everything(path: str, backend: str, made: World) -> None:
    """Read it in every way, then delete it; after each step all errors are our own, and nothing else has changed."""
    before = made.contents()
    for act in READ_ONLY.values():
        only_own_errors(partial(act, path))
    only_own_errors(partial(restore_everything, path, backend, made.work))
    assert made.contents() == before
    only_own_errors(partial(find_latest, open_storage(str(made.place)), "local job"))
    only_own_errors(partial(dispose, path))
    only_own_errors(partial(CheckpointStore(open_storage(str(made.place)), JOB_ID).sweep, []))


@pytest.mark.slow
@pytest.mark.parametrize("format", [None, SavepointFormat.CANONICAL], ids=["checkpoint", "savepoint"])
@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
def test_no_text_in_a_snapshot_leads_out_of_it(format: SavepointFormat | None, data: st.DataObject) -> None:
    craft_and_try("hashmap", format, data)


@cache
def number_of_parts(format: SavepointFormat | None) -> int:
    damaging = Damaging()
    damaging.files(taken("hashmap", format))
    return damaging.parts


@pytest.mark.slow
@pytest.mark.parametrize("format", [None, SavepointFormat.CANONICAL], ids=["checkpoint", "savepoint"])
@settings(max_examples=examples(50), deadline=None)
@given(data=st.data(), at=st.integers(0, 10_000), inserted=st.binary(min_size=1, max_size=9))
def test_no_bytes_in_a_snapshot_raise_anything_but_our_own_errors(
    format: SavepointFormat | None, data: st.DataObject, at: int, inserted: bytes
) -> None:
    chosen = data.draw(st.integers(0, number_of_parts(format) - 1), "which part")
    with world() as made:
        try:
            crafted = Damaging(chosen, at, inserted).files(taken("hashmap", format))
        except ValueError:
            return  # no file can hold it
        made.put(crafted)
        metadata = max(path for path in crafted if path.endswith("_metadata"))
        try_everything(str(made.place / metadata), "hashmap", made)


@pytest.mark.slow
@pytest.mark.parametrize("format", [None, SavepointFormat.NATIVE], ids=["checkpoint", "savepoint"])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_no_text_in_a_rocksdb_snapshot_leads_out_of_it(format: SavepointFormat | None, data: st.DataObject) -> None:
    craft_and_try("rocksdb", format, data)


def craft_and_try(backend: str, format: SavepointFormat | None, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, number_of_texts(backend, format) - 1), "which text")
    with world() as made:
        name = data.draw(names, "its new value").replace(OUTSIDE, str(made.outside))
        try:
            crafted = Rewriting(chosen, name).files(taken(backend, format))
        except (UnicodeEncodeError, ValueError):
            return  # no file can hold it
        made.put(crafted)
        metadata = max(path for path in crafted if path.endswith("_metadata"))
        try_everything(str(made.place / metadata), backend, made)


@settings(max_examples=examples(100), deadline=None)
@given(files=st.dictionaries(names | st.sampled_from(["offsets/1", "commits/1", "metadata"]), st.binary(max_size=3)))
def test_no_name_in_a_source_position_leads_out_of_the_query_directory(files: dict[str, bytes]) -> None:
    with world() as made:
        named = {name.replace(OUTSIDE, str(made.outside)): data for name, data in files.items()}
        named |= {"offsets/1": b"v1\n{}\n0\n0", "commits/1": b"v1"} if len(files) % 2 else {}
        with contextlib.suppress(UnicodeEncodeError):
            held = [HeldSource("a", "text", "", [0], [0]), HeldSource("b", "text", "", [1], [7])]
            position = decode_position(encode_position(SourcePosition(1, named, [], VERSION, held)))
            only_own_errors(partial(lay_out, position, made.work / "query", held, Streams(((0,), (1,)))))

        assert {each.name for each in made.work.iterdir()} <= {"query"}


@pytest.mark.parametrize("path", FLINK, ids=lambda path: path.name)
@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
def test_no_text_in_what_flink_wrote_leads_anywhere(path: Path, data: st.DataObject) -> None:
    metadata = decode(path.read_bytes())
    counting = Rewriting()
    counting.value(metadata)
    chosen = data.draw(st.integers(0, counting.count - 1))
    with world() as made:
        name = data.draw(names).replace(OUTSIDE, str(made.outside))
        made.put({"_metadata": encode(Rewriting(chosen, name).value(metadata))})
        before = made.contents()

        for act in (describe_flink_snapshot, *READ_ONLY.values()):
            only_own_errors(partial(act, str(made.place)))

        assert made.contents() == before


# ---------------------------------------------------------------------------------------------- staged output

UID = OperatorUid("out")
MARK = hashlib.sha256(UID.encode()).hexdigest()[:8]
STAGED = f"part-00000-{MARK}-a1-000000.json"
SINK = {
    "report.csv": b"theirs",
    f".checkdam/{JOB_ID}/{MARK}/{STAGED}": b"ours",
    f"part-00000-{MARK}-a0-000000.json": b"old",
}
sink_paths = st.one_of(
    names, st.sampled_from([*SINK, STAGED, "_SUCCESS", f"link/{STAGED}", f".checkdam/link/{MARK}/{STAGED}"])
)


def outputs(made: World) -> Outputs:
    committer = FileCommitter(open_storage(str(made.place)), JOB_ID, UID)
    return Outputs({UID: committer}, open_storage(str(made.work)))


@settings(max_examples=examples(80), deadline=None)
@given(staged=sink_paths, final=sink_paths, is_exhausted=st.booleans())
def test_no_committable_moves_or_deletes_anything_but_staged_output(
    staged: str, final: str, is_exhausted: bool
) -> None:
    with world() as made:
        made.put(SINK)
        staged, final = (each.replace(OUTSIDE, str(made.outside)) for each in (staged, final))
        try:
            crafted = msgspec.msgpack.encode(PartFile(staged, final))
        except UnicodeEncodeError:
            return
        promises = {"version": 1, "committables": {UID: [crafted]}}
        open_storage(str(made.work)).write("_promised", msgspec.json.encode(promises))
        history = {"version": 1, "revision": 1, "since": 0, "renamed": 1, "checkpoints": {"1": {UID: [crafted]}}}
        open_storage(str(made.work)).write(PUBLISHED, msgspec.json.encode(history))

        only_own_errors(lambda: outputs(made).commit(UID, [crafted]))
        sink = outputs(made)
        only_own_errors(sink.recall)
        only_own_errors(lambda: sink.resume(None, JobListener()))
        only_own_errors(lambda: sink.close(is_exhausted=is_exhausted))

        kept = {str(each.relative_to(made.place)): each.read_bytes() for each in made.place.iterdir() if each.is_file()}
        published = {name: data for name, data in SINK.items() if "/" not in name}
        assert kept in (published, {**published, STAGED: b"ours"})


@pytest.mark.parametrize("content", [b"", b"{", b'{"x":' + b"[" * 100_000, b'{"version":"\xff"}', b"\xff" * 9])
def test_notes_of_output_that_cannot_be_read_raise_nothing_but_our_own_errors(content: bytes) -> None:
    for name in ("_promised", PUBLISHED):
        with world() as made:
            open_storage(str(made.work)).write(name, content)

            only_own_errors(outputs(made).recall)
