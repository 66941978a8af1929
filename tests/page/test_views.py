"""Each view at each width, in light and dark: nothing is cut, covered, faint, unnamed or complained of.

`make shots` runs this and leaves a picture of each in build/shots.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page
from tests.page.conftest import READY
from tests.page.views import VIEWS, Host, View

pytestmark = pytest.mark.slow

WIDTHS = {1400: 900, 390: 844}  # to the height of the window
SMALLEST = {"width": 360, "height": 740}
FLAWS, FAINT, UNNAMED = (
    (Path(__file__).parent / name).read_text() for name in ("flaws.js", "faint_text.js", "unnamed.js")
)
_SETTLED = """() => !document.querySelector(".waiting")
    && [...document.querySelectorAll(".canvas-place")].every((place) => place.querySelector("canvas"))"""


@dataclass
class Window:
    """A browser's window of one width and colour scheme, used for one view after the other."""

    page: Page
    hosts: dict[Host, str]
    complaints: list[str] = field(default_factory=list)

    def hear(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)

    def show(self, view: View) -> Page:
        self.page.goto("about:blank")
        self.complaints.clear()
        self.page.goto(f"{self.hosts[view.host]}/#/{'/'.join(view.path)}")
        self.page.wait_for_function(READY)
        self.page.wait_for_function(_SETTLED)
        fold = self.page.get_by_role("button", name="Actions and facts")  # on a phone
        if view.press and fold.is_visible():
            fold.click()
        for name in view.press:
            self.page.get_by_role("button", name=name, exact=True).click()
        return self.page


@pytest.fixture(scope="module")
def windows(browser: Browser, hosts: dict[Host, str]) -> Iterator[Any]:
    """`windows(width, scheme)` gives a Window; each is opened once."""
    opened: dict[tuple[int, str], Window] = {}

    def window(width: int, scheme: Literal["light", "dark"]) -> Window:
        if (width, scheme) not in opened:
            context = browser.new_context(
                viewport={"width": width, "height": WIDTHS.get(width, SMALLEST["height"])},
                color_scheme=scheme,
                timezone_id="Europe/Berlin",
                reduced_motion="reduce",
            )
            context.set_default_timeout(15_000)
            new = opened[width, scheme] = Window(context.new_page(), hosts)
            new.page.on("pageerror", lambda error: new.complaints.append(str(error)))
            new.page.on("console", new.hear)
        return opened[width, scheme]

    yield window
    for each in opened.values():
        each.page.context.close()


@pytest.mark.parametrize("view", VIEWS, ids=str)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_covered_faint_or_unnamed(
    windows: Any, width: int, scheme: str, view: View, pytestconfig: pytest.Config
) -> None:
    window: Window = windows(width, scheme)

    page = window.show(view)

    shots = pytestconfig.getoption("shots", None)
    if shots is not None:
        page.screenshot(path=Path(shots) / f"{view.name}-{width}-{scheme}.png", full_page=not view.press)
    flaws = {name: page.evaluate(script) for name, script in (("flaws", FLAWS), ("faint", FAINT), ("unnamed", UNNAMED))}
    assert {name: found for name, found in flaws.items() if found} == {}
    assert window.complaints == []


def test_nothing_is_wider_than_a_small_phone(windows: Any) -> None:
    window: Window = windows(SMALLEST["width"], "light")
    for view in VIEWS:
        page = window.show(view)

        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, view


@pytest.mark.parametrize(("view", "table"), [("jobs", "Running jobs"), ("savepoints", "Savepoints")])
def test_a_table_with_long_words_needs_no_scrolling_on_a_desk(windows: Any, view: str, table: str) -> None:
    page = windows(1400, "light").show(_view(view))

    hidden = page.get_by_role("region", name=table).evaluate("table => table.scrollWidth - table.clientWidth")

    assert hidden <= 0


def test_a_traceback_is_read_on_a_phone_without_scrolling_sideways(windows: Any) -> None:
    page = windows(390, "light").show(_view("exceptions"))

    hidden = page.get_by_label("Traceback").first.evaluate("text => text.scrollWidth - text.clientWidth")

    assert hidden <= 0


def test_the_chosen_card_is_coloured_from_edge_to_edge(windows: Any) -> None:
    page = windows(390, "light").show(_view("rules-broadcast-live"))

    card, cell = page.evaluate("""() => {
        const card = document.querySelector("table.stacked tr.chosen");
        return [card, card.firstElementChild].map((each) => getComputedStyle(each).backgroundColor);
    }""")

    assert card == cell


def _view(name: str) -> View:
    return next(view for view in VIEWS if view.name == name)


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        ('<p style="margin: 0">first</p><p style="margin: -0.8em 0 0">second</p>', "over each other"),
        ('<p style="width: 60px; overflow: hidden; white-space: nowrap">far too much for it</p>', "cut off"),
        ('<div style="height: 12px; overflow: hidden"><p style="margin: 0">one</p><p>two</p></div>', "cut off"),
        ('<p style="width: 3000px">wide</p>', "wider than the window"),
    ],
)
def test_a_flaw_is_found(windows: Any, content: str, flaw: str) -> None:
    page = windows(390, "light").page
    page.goto("about:blank")  # a page of the server would refuse the styles
    page.set_content(content)

    found = page.evaluate(FLAWS)

    assert found != []
    assert all(flaw in each for each in found)


@pytest.mark.parametrize(
    "content",
    [
        '<p title="far too much" style="width: 60px; overflow: hidden; white-space: nowrap">far too much for it</p>',
        '<p style="width: 60px; overflow: auto; white-space: nowrap">far too much for it</p>',
        "<p>first</p><p>second</p><table><tr><td>one<td>two</table>",
    ],
)
def test_text_that_can_be_read_is_no_flaw(windows: Any, content: str) -> None:
    page = windows(390, "light").page
    page.goto("about:blank")  # a page of the server would refuse the styles
    page.set_content(content)

    assert page.evaluate(FLAWS) == []


def test_the_head_of_a_job_takes_no_third_of_a_phone(windows: Any) -> None:
    for view in (each for each in VIEWS if each.path[:1] == ("jobs",) and not each.press and "ended" not in each.name):
        page = windows(390, "light").show(view)

        bottom = page.locator("nav.tabs").first.evaluate("(tabs) => tabs.getBoundingClientRect().bottom + scrollY")
        assert bottom <= 0.28 * WIDTHS[390], view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_shows_where_there_is_more_and_scrolls_by_keyboard(windows: Any, scheme: str) -> None:
    wide = next(view for view in VIEWS if view.name == "overview")
    page = windows(390, scheme).show(wide)
    table = page.locator("[role=region][aria-label=Operators]")
    assert table.evaluate("(region) => region.scrollWidth > region.clientWidth")

    table.scroll_into_view_if_needed()
    edges = _edges(table)
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(region) => region.scrollLeft > 20", arg=table.element_handle())
    table.evaluate("(region) => { region.scrollLeft = region.scrollWidth }")

    assert edges == (False, True)
    assert _edges(table) == (True, False)


_SHADED = """async (picture) => {
    const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    canvas.drawImage(bitmap, 0, 0);
    const at = (x) => [...canvas.getImageData(x, bitmap.height - 8, 1, 1).data];
    const middle = at(bitmap.width / 2);
    const differs = (x) => at(x).reduce((sum, part, index) => sum + Math.abs(part - middle[index]), 0) > 30;
    return [differs(2), differs(bitmap.width - 3)];
}"""


def _edges(table: Locator) -> tuple[bool, bool]:
    """Return whether the left and the right edge of a table, in its last row, are shaded."""
    other = table.page.context.new_page()  # the page's own policy would refuse the picture
    left, right = other.evaluate(_SHADED, base64.b64encode(table.screenshot()).decode())
    other.close()
    return left, right
