"""Records that are changed after they were emitted, on Spark: every reader sees them as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import FlatMapFunction, KeyedProcessFunction, OutputTag, RuntimeContext, ValueStateDescriptor

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark


@dataclass
class Account:
    owner: str
    n: int


ASIDE = OutputTag("aside", Account)


class Counted(KeyedProcessFunction):
    """Emits the account that it keeps, twice, and goes on to change it."""

    def open(self, ctx: RuntimeContext) -> None:
        self.state = ctx.get_state(ValueStateDescriptor("account", Account))

    def process_element(self, value: str, ctx: Any) -> Iterator[Account]:
        account = self.state.value() or Account(value, 0)
        account.n += 1
        self.state.update(account)
        ctx.output(ASIDE, account)
        yield account


class Reused(FlatMapFunction):
    """Emits one object again and again, where Spark reads the source."""

    account = Account("k", 0)

    def flat_map(self, value: str) -> Iterator[Account]:
        self.account.n += 1
        yield self.account


def test_what_is_emitted_does_not_change_afterwards(jobs: Jobs) -> None:
    env = jobs.environment()
    names = env.from_collection(["k", "k", "k"])
    accounts = names.key_by(lambda name: name).process(Counted()).uid("count")
    accounts.sink_to_files(str(jobs.tmp_path / "files"))
    accounts.map(lambda account: account.n, output_type=int).print("chained")
    by_owner = accounts.key_by(lambda account: account.owner)
    by_owner.map(lambda account: account.n, output_type=int).print("shuffled")
    accounts.get_side_output(ASIDE).map(lambda account: account.n, output_type=int).print("aside")
    names.flat_map(Reused()).key_by(lambda a: a.owner).map(lambda a: a.n, output_type=int).print("reused")

    env.execute()

    files = (jobs.tmp_path / "files").glob("part-*.json")
    assert [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()] == [1, 2, 3]
    shown: dict[str, list[int]] = {}
    for line in jobs.watcher.lines:
        label, _, number = line.rpartition("> ")
        shown.setdefault(label.partition(":")[0], []).append(int(number))
    assert shown == {label: [1, 2, 3] for label in ("chained", "shuffled", "aside", "reused")}
