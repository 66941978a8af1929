"""Records that no function can be given: an error of the record, not a lost slot and restarts without end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from checkdam import FixedDelayRestart, NoRestart
from checkdam.errors import UserFunctionError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.spark.conftest import Jobs

pytestmark = pytest.mark.spark


def _texts(tmp_path: Path) -> str:
    directory = tmp_path / "texts"
    directory.mkdir()
    (directory / "lines.txt").write_bytes(b"good\nb\xff\xfed\n")
    return str(directory)


@pytest.mark.parametrize("where", ["source side", "slot"])
def test_a_line_that_is_not_utf8_is_a_rejected_record(jobs: Jobs, tmp_path: Path, where: str) -> None:
    strategy = FixedDelayRestart(100, timedelta(0))
    env = jobs.environment(parallelism=1).set_restart_strategy(strategy, fail_on_repeated_rejection=True)
    lines = env.read_text(_texts(tmp_path))
    keyed: Any = lines.key_by(lambda line: line)  # Spark alone brings these to their slot
    (keyed.reduce(lambda kept, added: added).uid("last") if where == "slot" else lines.map(str.upper)).print()

    with pytest.raises(UserFunctionError, match=r"not UTF-8.*byte 0xff in position 1.*make_valid_utf8") as refused:
        env.execute()

    assert refused.value.operator.startswith("text(")
    assert refused.value.record == repr(b"b\xff\xfed")
    assert len(jobs.watcher.failures) == 1


def test_what_is_not_utf8_is_replaced_if_so_set(jobs: Jobs, tmp_path: Path) -> None:
    env = jobs.environment(parallelism=1)
    env.read_text(_texts(tmp_path), errors="replace").key_by(lambda line: line).reduce(lambda a, b: a).uid("r").print()

    env.execute()

    assert sorted(jobs.watcher.shown) == [b"b\xff\xfed".decode(errors="replace"), "good"]


def test_null_in_the_column_of_the_key_is_an_error_of_its_row(jobs: Jobs, spark: SparkSession) -> None:
    env = jobs.environment(parallelism=1).set_restart_strategy(NoRestart())
    sales = spark.createDataFrame([("x", 3), (None, 5)], "shop string, amount bigint")
    env.from_dataframe(sales).key_by("shop").sum("amount").uid("sum").print()

    with pytest.raises(UserFunctionError, match="the key is None") as refused:
        env.execute()

    assert (refused.value.operator, refused.value.record) == ("sum", "Row(shop=None, amount=5)")
