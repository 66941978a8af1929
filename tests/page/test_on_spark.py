"""The page beside a whole `checkdam run`, Spark included: every button pressed, every view photographed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.page.conftest import Visitor

from checkdam.cli.demo.child import ChildJob

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCREENSHOTS = Path("build/screenshots")
PATIENCE = 90_000  # milliseconds
SETTLED = """() => !document.querySelector(".waiting")
  && document.querySelectorAll(".canvas-place").length === document.querySelectorAll(".canvas-place canvas").length"""

JOB = """
import pathlib, sys, time
from checkdam import *

FAILED = pathlib.Path(sys.argv[1])

class Orders(SourceFunction, CheckpointedFunction):
    def __init__(self):
        self.number = 0

    def run(self, ctx):
        while True:
            self.number += 1
            if self.number % 50 == 0:
                time.sleep(0.02)
            yield f"customer {self.number % 300},{self.number % 90}"

    def initialize_state(self, ctx):
        self.kept = ctx.operator_state_store.get_list_state(ListStateDescriptor("number", int))
        for number in self.kept.get():
            self.number = number

    def snapshot_state(self, ctx):
        self.kept.update([self.number])

def parse(line):
    customer, _, amount = line.partition(",")
    if amount == "77" and not FAILED.exists():
        FAILED.touch()
        raise ValueError(f"order of {customer} for {amount}")
    return customer, int(amount)

class Largest(KeyedProcessFunction):
    def open(self, ctx):
        self.orders = ctx.get_map_state(MapStateDescriptor("orders by amount", int, int))

    def process_element(self, order, ctx):
        self.orders[order[1]] = self.orders.get(order[1], 0) + 1
        if order[1] < 0:
            yield "never"

env = StreamExecutionEnvironment.get_execution_environment()
orders = env.add_source(Orders()).uid("orders").name("orders").set_parallelism(1)
keyed = orders.map(parse, output_type=tuple[str, int]).name("parse").key_by(lambda order: order[0], key_type=str)
keyed.sum(1).uid("totals").name("total by customer").filter(lambda total: total[1] < 0).name("owed").print()
keyed.process(Largest(), output_type=str).uid("largest").name("orders by amount").print()
env.execute("orders <b>by</b> customer")
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ChildJob]:
    job = tmp_path / "orders.py"
    job.write_text(JOB)
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 s",
        "restart-strategy.fixed-delay.attempts": "5",
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.num-retained": "4",
        "execution.checkpointing.savepoint-dir": str(tmp_path / "savepoints"),
        "web.refresh-interval": "500 ms",
    }
    given = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    child = ChildJob([*given, "-p", "2", "--port", "0", str(job), "--", str(tmp_path / "failed")], "page")
    yield child
    child.kill()


def test_every_button_and_view_on_a_job_that_runs_on_spark(running: ChildJob, tmp_path: Path, visit: Any) -> None:
    url = running.wait_for(r"http://\S+", seconds=120).group().rstrip("/.,")
    visitor: Visitor = visit(url, viewport={"width": 1280, "height": 900})
    page = visitor.page
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    try:
        page.goto(url)
        page.get_by_role("link", name="orders <b>by</b> customer").click()
        job = page.url.rsplit("/", 1)[1]
        _press_buttons(page, job)
        snapshots = _look_into_state(page, job)
        _photograph(visit, url, job, snapshots)
        _stop(visitor.open("jobs", job), tmp_path / "savepoints")
    finally:
        expect.set_options(timeout=5_000)


def _press_buttons(page: Page, job: str) -> None:
    results = page.get_by_role("status", name="Results")
    expect(page.locator("dl.facts").filter(has_text="Restarts").first).to_contain_text("Restarts1")
    page.get_by_role("link", name="Checkpoints").click()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("row", name="COMPLETED").nth(1)).to_be_visible()

    page.get_by_role("button", name="Checkpoint", exact=True).click()
    page.get_by_role("button", name="Take checkpoint").click()
    expect(results).to_contain_text("is complete.")

    page.get_by_role("button", name="Savepoint", exact=True).click()
    page.get_by_role("button", name="Take savepoint").click()
    expect(results).to_contain_text("Savepoint is complete:")

    page.get_by_role("button", name="Rescale").click()
    page.get_by_label("Parallelism").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Rescale").click()
    expect(results).to_contain_text("The job runs with parallelism 3.")
    expect(page.locator("dl.facts").first).to_contain_text("3 of at most")

    page.get_by_role("link", name="Exceptions").click()
    expect(page.get_by_label("Traceback").first).to_contain_text("in parse")
    expect(page.locator(".exception summary").first).to_contain_text("order of customer")


def _look_into_state(page: Page, job: str) -> tuple[str, str]:
    """A key live, then two snapshots compared; gives their names."""
    page.get_by_role("link", name="State").click()
    page.get_by_role("row", name="total by customer").get_by_role("link").click()
    page.get_by_label("Key", exact=True).fill("customer 7")
    page.get_by_role("button", name="Look up").click()
    answer = page.locator(".answer")
    expect(answer).to_contain_text('"customer 7" holds ["customer 7",')
    before = answer.inner_text()
    expect(answer).not_to_have_text(before)  # it runs, so what the key holds grows

    page.get_by_role("link", name="Compare two").click()
    row = page.get_by_role("region", name="Differences by state").get_by_role("row", name="totals")
    expect(row).to_be_visible()
    expect(page.get_by_role("row", name="changed").first).to_be_visible()
    older, newer = (page.get_by_label(name).input_value() for name in ("Before", "After"))
    return older, newer


def _photograph(visit: Any, url: str, job: str, snapshots: tuple[str, str]) -> None:
    """For people to look at: nothing but that it can be shown is checked here."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    views = {
        "jobs": (),
        "job": ("jobs", job),
        "exceptions": ("jobs", job, "exceptions"),
        "checkpoints": ("jobs", job, "checkpoints"),
        "history": ("jobs", job, "checkpoints", "history"),
        "summary": ("jobs", job, "checkpoints", "summary"),
        "checkpoint": ("jobs", job, "checkpoints", "3"),
        "state": ("jobs", job, "state", "live", "totals", "_op_state"),
        "savepoints": ("jobs", job, "savepoints"),
        "configuration": ("jobs", job, "configuration"),
        "slots": ("slots",),
    }
    wide = {"width": 1280, "height": 900}
    kinds: dict[str, dict[str, Any]] = {
        "light": {"viewport": wide, "color_scheme": "light"},
        "dark": {"viewport": wide, "color_scheme": "dark"},
        "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    }
    for kind, options in kinds.items():
        visitor = visit(url, **options)
        for name, view in views.items():
            page = visitor.open(*view)
            page.wait_for_function(SETTLED)
            page.screenshot(path=SCREENSHOTS / f"{name}-{kind}.png", full_page=True)
            assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, (name, kind)


def _stop(page: Page, savepoints: Path) -> None:
    before = set(savepoints.iterdir())
    page.get_by_role("button", name="Stop with savepoint").click()
    page.get_by_role("button", name="Stop the job").click()

    expect(page.get_by_role("status", name="Results")).to_contain_text("The job has stopped. Its savepoint:")
    expect(page.get_by_text("The job has ended, and its server with it.")).to_be_visible()
    assert len(set(savepoints.iterdir()) - before) == 1
