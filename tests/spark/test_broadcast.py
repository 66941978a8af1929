"""Broadcast streams on Spark: within an epoch every subtask has all rules before any item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import CheckpointRetention
from checkdam.graph.functions import KeyedBroadcastProcessFunction
from checkdam.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark

RULES = MapStateDescriptor("rules", str, int)
SEEN = MapStateDescriptor("seen", str, int)
KEYS = "abcdefgh"


class Match(KeyedBroadcastProcessFunction):
    """Gives each item with the sum of all rules there are, 1000 for each time it came before, 100 for a rule since."""

    def process_broadcast_element(self, value: str, ctx: Any) -> None:
        name, number = value.split()
        ctx.get_broadcast_state(RULES)[name] = int(number)
        ctx.apply_to_keyed_state(SEEN, lambda key, seen: seen.put("rules", seen.get("rules", 0) + 1))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        seen = ctx.get_map_state(SEEN)
        before = seen.get("items", 0)
        seen["items"] = before + 1
        yield value, sum(ctx.get_broadcast_state(RULES).values()) + 1000 * before + 100 * seen.get("rules", 0)


def test_every_subtask_sees_all_rules_of_an_epoch_before_its_items(jobs: Jobs) -> None:
    items = jobs.texts(*["\n".join(KEYS) + "\n"] * 2, directory="items")
    rules = jobs.texts("x 1\ny 2\n", "x 10\n", directory="rules")
    environment = jobs.environment(3, jobs.checkpoints())
    keyed = environment.read_text(items, max_files_per_epoch=1).key_by(lambda item: item, key_type=str)
    broadcast = environment.read_text(rules, max_files_per_epoch=1).broadcast(RULES)
    matched = keyed.connect(broadcast).process(Match(), output_type=tuple[str, int]).uid("match")
    matched.key_by(lambda pair: pair[0], key_type=str).sum(1).uid("sum").print()

    environment.execute()

    assert Counter(jobs.watcher.values) == Counter([(key, 3) for key in KEYS] + [(key, 1115) for key in KEYS])


def test_rules_survive_a_restart_with_another_parallelism(jobs: Jobs) -> None:
    def run(*items: str, parallelism: int, resume: bool) -> Counter[Any]:
        texts = jobs.texts(*items, first=10 if resume else 0, directory="items")
        rules = jobs.texts("x 1\ny 2\n", directory="rules")
        environment = jobs.environment(
            parallelism, jobs.checkpoints(retention=CheckpointRetention.RETAIN_ON_CANCELLATION), resume=resume
        )
        keyed = environment.read_text(texts, max_files_per_epoch=1).key_by(lambda item: item, key_type=str)
        matched = keyed.connect(environment.read_text(rules).broadcast(RULES)).process(
            Match(), output_type=tuple[str, int]
        )
        matched.uid("match").print()
        if not resume:
            jobs.watcher.on_checkpoint = lambda _: jobs.cancel()
        environment.execute("match")
        return Counter(jobs.watcher.values)

    first = run("\n".join(KEYS), parallelism=2, resume=False)
    again = run("\n".join(KEYS), parallelism=3, resume=True)

    assert first == Counter((key, 3) for key in KEYS)
    assert again == Counter((key, 1003) for key in KEYS)
