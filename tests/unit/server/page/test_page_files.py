from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath

import httpx
import pytest

from checkdam.config import Configuration
from checkdam.server.app.rest_server import RestServer
from checkdam.server.page.page_files import static_files

VENDOR = "vendor/"
OURS = {path: file for path, file in static_files().items() if not path.startswith(VENDOR)}
REPOSITORY = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    server = RestServer(Configuration.load(None, {"rest.port": "0", "rest.auth.token": "secret"}))
    server.start()
    with httpx.Client(base_url=server.url) as opened:
        yield opened
    server.close(timedelta(0))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/pages/jobs.js", "text/javascript; charset=utf-8"),
        ("/ui/style.css", "text/css; charset=utf-8"),
        ("/ui/icon.svg", "image/svg+xml"),
        ("/ui/vendor/uplot/uPlot.esm.js", "text/javascript; charset=utf-8"),
        ("/ui/vendor/preact/LICENSE.txt", "text/plain; charset=utf-8"),
    ],
)
def test_every_kind_of_file_has_its_type_and_needs_no_token(client: httpx.Client, path: str, kind: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind


def test_a_file_that_the_browser_has_already_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/ui/app.js")

    again = client.get("/ui/app.js", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    changed = client.get("/ui/app.js", headers={"If-None-Match": '"other"'})

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    assert changed.content == first.content


@pytest.mark.parametrize("path", ["/", "/ui/app.js"])
def test_no_script_or_style_but_the_pages_own_is_allowed(client: httpx.Client, path: str) -> None:
    policy = client.get(path).headers["content-security-policy"]

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", ["/ui/nothing.js", "/ui/../__init__.py", "/ui/%2e%2e/serving.py", "/ui/", "/ui/pages"])
def test_nothing_but_the_pages_files_is_served(client: httpx.Client, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code in (401, 404)  # 401: not a path of the page's at all
    assert list(answer.json()) == ["errors"]


def test_the_page_has_no_inline_script_style_or_handler() -> None:
    page = OURS["index.html"].content.decode()

    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", page) == []


def test_every_module_is_asked_for_at_once() -> None:
    page = OURS["index.html"].content.decode()
    named = set(re.findall(r'rel="modulepreload" href="ui/([^"]+)"', page))

    assert {path for path in OURS if path.endswith(".js")} - {"app.js"} == {
        p for p in named if not p.startswith(VENDOR)
    }


@pytest.mark.parametrize("path", [path for path in static_files() if path.endswith((".js", ".html", ".css"))])
def test_everything_a_file_refers_to_is_served_from_here(path: str) -> None:
    text = static_files()[path].content.decode()

    if not path.startswith(VENDOR):
        assert re.findall(r"https?://(?!www\.w3\.org/)", text) == []  # works without a network
    for reference in re.findall(r'(?:from|import)\s*\(?\s*"(\.[^"]+)"', text):
        parts: list[str] = []
        for part in (PurePosixPath(path).parent / reference).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        assert "/".join(parts) in static_files(), reference
    for reference in re.findall(r'(?:href|src)="(ui/[^"]+)"', text):
        assert reference.removeprefix("ui/") in static_files(), reference


def test_no_page_of_ours_puts_text_in_as_markup() -> None:
    risky = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    files = [path for path, file in OURS.items() if path.endswith(".js") and risky.search(file.content.decode())]

    assert files == []


def test_every_library_has_its_licence_and_the_version_that_the_script_fetches() -> None:
    script = (REPOSITORY / "tools" / "vendor.sh").read_text()
    pinned = dict(re.findall(r"^fetch (\S+) (\S+) [0-9a-f]{64}$", script, re.MULTILINE))
    vendored = {path.split("/")[1] for path in static_files() if path.startswith(VENDOR) and path.count("/") > 1}

    assert vendored == set(pinned)
    for name in vendored:
        assert b"icense" in static_files()[f"{VENDOR}{name}/LICENSE.txt"].content
    versions = static_files()[f"{VENDOR}VERSIONS.txt"].content.decode().split("\n")
    assert versions == [*(f"{name} {version}" for name, version in pinned.items()), ""]
