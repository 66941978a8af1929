"""Uids that sources get where the program gives none."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from checkdam.connectors.sources import CollectionSource, SourceSpec, StreamSource
from checkdam.errors import JobGraphError
from checkdam.graph.checks import check_uids
from checkdam.graph.operators import Operator, SourceKind
from checkdam.graph.source_uids import with_source_uids
from checkdam.ids import OperatorUid
from checkdam.types.type_info import type_info


def operators(*specs: SourceSpec | tuple[SourceSpec, str]) -> list[Operator]:
    pairs = [spec if isinstance(spec, tuple) else (spec, None) for spec in specs]
    return [
        Operator(i, f"s{i}", SourceKind(spec), (), type_info(str), OperatorUid(uid) if uid else None)
        for i, (spec, uid) in enumerate(pairs)
    ]


def uids(*specs: SourceSpec | tuple[SourceSpec, str]) -> list[str | None]:
    return [op.uid for op in with_source_uids(operators(*specs))]


def text(path: str, **options: str) -> StreamSource:
    return StreamSource("text", {"path": path, **options}, bounded=True)


ONE = CollectionSource(("a",))


def test_a_uid_tells_kind_and_place() -> None:
    assert uids(text("/in"), StreamSource("kafka", {"subscribe": "orders"}), ONE) == [
        "source:text(/in)",
        "source:kafka(subscribe=orders)",
        "source:collection",
    ]


def test_uids_do_not_depend_on_order_nor_on_how_a_place_is_read() -> None:
    assert uids(text("/a", maxFilesPerTrigger="1"), text("/b")) == uids(text("/b"), text("/a"))[::-1]


@pytest.mark.parametrize("path", ["/in", "/in/", "file:/in", "file:///in", os.path.relpath("/in")])
def test_a_directory_has_one_name_however_it_is_written(path: str) -> None:
    assert text(path).place == "/in"


def test_secrets_in_options_are_not_kept() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "kafka.sasl.jaas.config": "secret", "subscribe": "t"}

    assert StreamSource("kafka", options).place == "subscribe=t"


def test_sources_alike_are_numbered_and_a_uid_of_the_program_is_passed_over() -> None:
    assert uids(ONE, ONE, (ONE, "mine")) == ["source:collection", "source:collection#2", "mine"]
    assert uids(ONE, (ONE, "source:collection")) == ["source:collection#2", "source:collection"]


def test_planning_again_changes_nothing() -> None:
    once = with_source_uids(operators(ONE, text("/in"), ONE))

    assert with_source_uids(once) == once
    assert [op.has_derived_uid for op in with_source_uids(operators(ONE, (ONE, "mine")))] == [True, False]


def test_a_long_place_gives_a_short_uid_of_its_own() -> None:
    one, other = uids(text("/" + "x" * 5000 + "1"), text("/" + "x" * 5000 + "2"))

    assert one is not None
    assert one != other
    assert len(one) < 300


def test_two_sources_of_one_uid_are_an_error() -> None:
    with pytest.raises(JobGraphError, match='operators "s0" and "s1" have the same uid "in"'):
        check_uids(with_source_uids(operators((text("/a"), "in"), (text("/b"), "in"))))


def test_a_source_without_a_replayable_position_has_no_place() -> None:
    socket = StreamSource("socket", {"host": "h", "port": "1", "path": "/x"}, replayable=False)

    assert socket.place == ""
    assert replace(socket, replayable=True).place == "/x"
