"""The graph: what operators are called, labels that can be read, zooming and moving."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from benchmarks.history import JOB_ID, job_with_history
from playwright.sync_api import Locator, Page, expect
from tests.page.conftest import SERVED, Kept, Words
from tests.page.rules_job import UID
from tests.page.views import JOB

from checkdam.config import Configuration
from checkdam.server.app.rest_server import RestServer

pytestmark = pytest.mark.slow

_OVERLAPS = """() => {
  const drawn = [...document.querySelectorAll(".graph .edge-label, .graph .node")];
  const boxes = drawn.map((each) => each.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return boxes.flatMap((one, at) => boxes.slice(at + 1).filter((other) => meet(one, other))).length;
}"""


def region(page: Page) -> Locator:
    return page.get_by_role("region", name="The job’s operators and exchanges")


def scale(page: Page) -> float:
    return float(page.evaluate("() => new DOMMatrix(getComputedStyle(document.querySelector('.canvas')).transform).a"))


def scroll(page: Page) -> list[float]:
    found: list[float] = region(page).evaluate("(place) => [place.scrollLeft, place.scrollTop]")
    return found


def test_an_operator_without_a_name_is_called_by_its_uid(rules: Words, visit: Any) -> None:
    page = visit(rules.url).open("jobs", JOB)

    nodes = page.locator(".graph .node")
    expect(nodes).to_have_count(7)
    titles = [title.get_attribute("title") for title in page.locator(".graph .node strong").all()]
    assert UID in titles
    assert "remember all payments since the start" in titles
    expect(page.get_by_role("link", name=f"{UID} keyed broadcast connect")).to_be_visible()


def test_a_long_name_is_cut_in_its_middle_and_whole_when_focused(rules: Words, visit: Any) -> None:
    page = visit(rules.url).open("jobs", JOB)
    node = page.locator(".graph li").filter(has=page.locator(f'strong[title="{UID}"]'))
    shown = node.locator("strong span[aria-hidden]").inner_text()
    whole = node.locator(".whole-name")

    assert "…" in shown
    head, tail = shown.split("…")
    assert UID.startswith(head)
    assert UID.endswith(tail)
    expect(whole).to_be_hidden()
    region(page).focus()
    while not node.locator("a").evaluate("(link) => link === document.activeElement"):
        page.keyboard.press("Tab")
    expect(whole).to_be_visible()
    expect(whole).to_have_text(UID)


@pytest.mark.parametrize("width", [360, 390, 800, 1400])
def test_no_label_lies_over_another_or_over_an_operator(rules: Words, history: str, visit: Any, width: int) -> None:
    for url, job in ((rules.url, JOB), (history, JOB_ID)):
        page = visit(url, viewport={"width": width, "height": 800}).open("jobs", job)

        assert page.locator(".graph .edge-label").count() > 0
        assert page.evaluate(_OVERLAPS) == 0


def test_labels_without_room_are_left_out_rather_than_drawn_over_each_other(rules: Words, visit: Any) -> None:
    page = visit(rules.url).open("jobs", JOB)

    places = page.evaluate(
        """async () => {
          const { placeLabels } = await import("./ui/layout.js");
          const along = (t) => ({ x: 100 + 10 * t, y: 100 * t });
          const edges = Array.from({ length: 60 }, () => ({ label: "BROADCAST", along }));
          return placeLabels(edges, [{ left: 60, right: 150, top: 0, bottom: 20 }]).map((edge) => edge.at);
        }"""
    )

    placed = [at for at in places if at is not None]
    assert 1 < len(placed) < 60
    assert all(abs(one["y"] - other["y"]) >= 15 for n, one in enumerate(placed) for other in placed[n + 1 :])


def test_the_watermark_has_its_date_and_how_far_it_is_behind(history: str, visit: Any) -> None:
    page = visit(history).open("jobs", JOB_ID)

    node = page.get_by_role("link", name="in euros keyed process")
    expect(node).to_contain_text(time.strftime("%Y-%m-%d ", time.localtime()))
    expect(node).to_contain_text("behind")


def test_the_graph_is_zoomed_by_buttons_and_keys(rules: Words, visit: Any) -> None:
    page = visit(rules.url).open("jobs", JOB)
    zoom = page.get_by_role("group", name="Zoom")

    zoom.get_by_role("button", name="Larger").click()
    assert scale(page) == pytest.approx(1.25)
    expect(zoom.get_by_role("status")).to_have_text("125%")
    zoom.get_by_role("button", name="Reset").click()
    assert scale(page) == 1

    region(page).focus()
    page.keyboard.press("-")
    assert scale(page) == pytest.approx(0.8)
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert scale(page) == pytest.approx(1.25)
    page.keyboard.press("0")
    assert scale(page) == 1


def test_the_wheel_zooms_with_the_control_key_alone_and_the_point_stays(rules: Words, visit: Any) -> None:
    page = visit(rules.url, viewport={"width": 1400, "height": 1200}).open("jobs", JOB)
    node = page.locator(".graph .node").nth(2)
    before = node.bounding_box()
    assert before is not None
    page.mouse.move(before["x"], before["y"])

    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("() => new DOMMatrix(getComputedStyle(document.querySelector('.canvas')).transform).a > 1.5")
    after = node.bounding_box()
    assert after is not None
    assert (after["x"], after["y"]) == pytest.approx((before["x"], before["y"]), abs=16)

    zoomed = scale(page)
    page.mouse.wheel(0, 50)
    assert scale(page) == zoomed


def test_the_mouse_drags_the_graph(rules: Words, visit: Any) -> None:
    page = visit(rules.url, viewport={"width": 1400, "height": 2400}).open("jobs", JOB)
    for _ in range(4):
        page.get_by_role("button", name="Larger").click()
    box = region(page).bounding_box()
    assert box is not None
    start = scroll(page)

    page.mouse.move(box["x"] + 30, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + 20)
    page.mouse.up()

    assert scroll(page) == [start[0] + 20, start[1] + 40]


def test_two_fingers_zoom_the_graph(rules: Words, visit: Any) -> None:
    page = visit(rules.url, viewport={"width": 390, "height": 844}, has_touch=True).open("jobs", JOB)

    region(page).evaluate(
        """(place) => {
          const { left, top } = place.getBoundingClientRect();
          const touch = (type, pointerId, x, y) => {
            const at = { clientX: left + x, clientY: top + y };
            place.dispatchEvent(new PointerEvent(type, { pointerId, pointerType: "touch", ...at, bubbles: true }));
          };
          touch("pointerdown", 1, 100, 100);
          touch("pointerdown", 2, 200, 100);
          touch("pointermove", 2, 250, 100);
          touch("pointerup", 1, 100, 100);
          touch("pointerup", 2, 250, 100);
        }"""
    )

    expect(page.get_by_role("group", name="Zoom").get_by_role("status")).to_have_text("150%")


@pytest.fixture
def with_sockets() -> Iterator[str]:
    """The address of a server whose job has slots that listen on sockets in a directory."""
    record = job_with_history(checkpoints=3, now=time.time_ns() // 1_000_000)
    slots = tuple(
        msgspec.structs.replace(slot, location=f"/var/work/{slot.subtask}/slot.sock") for slot in record.slots
    )
    with RestServer(Configuration.load(None, SERVED), Kept([msgspec.structs.replace(record, slots=slots)])) as server:
        yield server.url


def test_slots_are_told_by_number_and_not_by_socket(with_sockets: str, visit: Any) -> None:
    page = visit(with_sockets).open("jobs", JOB_ID, "overview", f"{5:032x}")

    rows = page.get_by_role("region", name="Subtasks of total by customer").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text("slot 2")
    assert ".sock" not in page.locator("main").inner_text()


def test_history_and_state_are_cards_on_a_phone(history: str, rules: Words, visit: Any) -> None:
    for url, path, name in (
        (history, ("jobs", JOB_ID, "checkpoints", "history"), "History of checkpoints"),
        (rules.url, ("jobs", JOB, "state"), "Keyed states"),
        (rules.url, ("jobs", JOB, "state"), "Operator states"),
        (rules.url, ("jobs", JOB, "state", "live", UID, "paid"), "Keys and values"),
    ):
        page = visit(url, viewport={"width": 390, "height": 844}).open(*path)
        table = page.get_by_role("region", name=name)

        expect(table.locator("tbody tr").first).to_be_visible()
        assert table.evaluate("(place) => place.scrollWidth - place.clientWidth") <= 0
        labels = (
            table.locator("tbody tr").first.locator("td").evaluate_all("(cells) => cells.map((c) => c.dataset.label)")
        )
        assert all(labels)


def test_on_a_phone_all_of_a_narrow_graph_is_seen(rules: Words, visit: Any) -> None:
    page = visit(rules.url, viewport={"width": 390, "height": 844}).open("jobs", JOB)

    assert 0.7 <= scale(page) < 1
    assert region(page).evaluate("(place) => place.scrollWidth - place.clientWidth") <= 0
