"""A job whose types have changed, on the real runtime: its state migrates, or it is refused before the first record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Annotated, Any

import pytest

from checkdam import (
    Alias,
    AvroType,
    HashMapStateBackend,
    KeyedProcessFunction,
    PickleType,
    ProcessContext,
    RocksDBStateBackend,
    RuntimeContext,
    ValueStateDescriptor,
    register_type,
)
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream
from checkdam.backends.contract import KeyedStateBackend
from checkdam.errors import StateNotRestorableError
from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.local_job import Build, LocalJob

Count = make_dataclass("Count", [("word", str), ("times", int)])
Total = make_dataclass("Total", [("total", Annotated[int, Alias("times")]), ("word", str), ("note", str, "-")])
Mismatch = make_dataclass("Count", [("word", str), ("times", str)])


class Remember(KeyedProcessFunction):
    """Emits what a key had, and keeps another value."""

    def __init__(self, of: Any, fields: dict[str, Any]) -> None:
        self._of = of
        self._fields = fields

    def open(self, ctx: RuntimeContext) -> None:
        self._kept = ctx.get_state(ValueStateDescriptor("kept", self._of))

    def process_element(self, value: str, ctx: ProcessContext) -> Iterator[str]:
        found = self._kept.value()
        yield repr(None if found is None else vars(found))
        self._kept.update((self._of.of if isinstance(self._of, PickleType) else self._of)(**self._fields))


@pytest.fixture(params=[HashMapStateBackend(), RocksDBStateBackend()], ids=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> KeyedStateBackend:
    found: KeyedStateBackend = request.param
    return found


def _job(backend: KeyedStateBackend, of: Any, **fields: Any) -> Build:
    def build(env: StreamExecutionEnvironment, stream: DataStream[Any]) -> None:
        env.set_state_backend(backend)
        words = stream.key_by(lambda word: word, key_type=str)
        words.process(Remember(of, fields), output_type=str).uid("remember").print()

    return build


def _run(storage: MemoryStorage, job: Build, *epochs: list[str]) -> list[str]:
    return LocalJob(job, epochs, storage, parallelism=1).run().printed_lines


def test_state_of_a_changed_class_migrates_and_stays_migrated(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    _run(storage, _job(backend, Count, word="a", times=3), ["a"])
    now = _job(backend, Total, word="b", total=4, note="!")

    migrated = _run(storage, now, ["a"], ["x"], ["a"])
    again = _run(storage, now, ["a"], ["x"], ["a"], ["a"])

    assert migrated == ["None", "{'total': 3, 'word': 'a', 'note': '-'}"]
    assert again == ["{'total': 4, 'word': 'b', 'note': '!'}"]


def test_an_incompatible_class_is_refused_before_the_first_record(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    _run(storage, _job(backend, Count, word="a", times=3), ["a"])
    job = LocalJob(_job(backend, Mismatch, word="a", times="3"), [["a"], ["a"]], storage, parallelism=1)

    with pytest.raises(StateNotRestorableError) as refused:
        job.run()

    assert 'state "kept" of operator "remember" cannot be restored' in refused.value.message
    assert 'field "times": int became str' in refused.value.message
    assert job.heard.epochs == []
    assert job.heard.restarts == []


class Model:
    def __init__(self, weight: float) -> None:
        self.weight = weight


def test_pickled_state_comes_back(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    job = _job(backend, PickleType(Model), weight=1.5)
    _run(storage, job, ["a"])

    assert _run(storage, job, ["a"], ["a"]) == ["{'weight': 1.5}"]


def test_pickled_state_of_another_class_is_refused(backend: KeyedStateBackend) -> None:
    storage = MemoryStorage()
    _run(storage, _job(backend, PickleType(Model), weight=1.5), ["a"])

    with pytest.raises(StateNotRestorableError, match=r"pickle\[Model\] became Count"):
        _run(storage, _job(backend, Count, word="a", times=3), ["a"], ["a"])


class Weight:
    """Kept in a form that changes."""

    def __init__(self, grams: int) -> None:
        self.grams = grams


OldForm = make_dataclass("OldForm", [("grams", int)])
NewForm = make_dataclass("NewForm", [("mg", Annotated[int, Alias("grams")]), ("note", str, "-")])


def test_state_of_a_registered_class_migrates_by_its_form(
    backend: KeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    storage = MemoryStorage()
    register_type(Weight, to=lambda kept: OldForm(kept.grams), from_=lambda form: Weight(form.grams), schema=OldForm)
    _run(storage, _job(backend, Weight, grams=3), ["a"])
    same = _run(storage, _job(backend, Weight, grams=4), ["a"], ["a"])

    register_type(Weight, to=lambda kept: NewForm(kept.grams), from_=lambda form: Weight(form.mg), schema=NewForm)
    migrated = _run(storage, _job(backend, Weight, grams=5), ["a"], ["a"], ["a"])

    assert same == ["{'grams': 3}"]
    assert migrated == ["{'grams': 4}"]


class Note:
    """Kept by an Avro schema that changes."""

    def __init__(self, text: str, stars: int = 0) -> None:
        self.text, self.stars = text, stars


def _note_schema(*more: dict[str, Any]) -> AvroType:
    return AvroType({"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}, *more]})


def test_state_of_an_avro_schema_migrates_or_is_refused_before_the_first_record(
    backend: KeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkdam.types.type_info._registered", {})
    storage = MemoryStorage()
    register_type(Note, to=lambda n: {"text": n.text}, from_=lambda form: Note(form["text"]), schema=_note_schema())
    _run(storage, _job(backend, Note, text="x"), ["a"])

    stars = {"name": "stars", "type": "long", "default": 3}
    register_type(Note, to=vars, from_=lambda form: Note(**form), schema=_note_schema(stars))
    migrated = _run(storage, _job(backend, Note, text="y", stars=4), ["a"], ["a"])
    del stars["default"]
    register_type(Note, to=vars, from_=lambda form: Note(**form), schema=_note_schema({**stars, "name": "other"}))

    assert migrated == ["{'text': 'x', 'stars': 3}"]
    with pytest.raises(StateNotRestorableError, match='field "other" is new and has no default'):
        _run(storage, _job(backend, Note, text="y"), ["a"], ["a"], ["a"])
