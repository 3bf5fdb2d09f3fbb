"""The documentation site in a browser: nothing is clipped or too wide, and nothing is loaded from other servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
WIDTHS = (360, 1300, 1600)
CLIPPED = """() => [...document.querySelectorAll(".md-typeset pre > code, .md-typeset img")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent.trim().slice(0, 60))"""
WIDER = "() => document.documentElement.scrollWidth > window.innerWidth + 1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The address of the site, and the paths of its pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    pages = [f"/{page.parent.relative_to(folder)}/".replace("/./", "/") for page in sorted(folder.rglob("index.html"))]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=[0.1], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", pages
        server.shutdown()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_loads_from_its_own_server(
    site: tuple[str, list[str]], browser: Browser, width: int
) -> None:
    """A code block scrolls on a phone and is not clipped on a desktop."""
    address, pages = site
    page = browser.new_page(viewport={"width": width, "height": 1000})
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    for path in pages:
        page.goto(address + path)
        assert not page.evaluate(WIDER), path
        assert width == min(WIDTHS) or not page.evaluate(CLIPPED), path
    assert [each for each in asked if not each.startswith((address, "data:"))] == []
    page.close()


def test_search_finds_a_page(site: tuple[str, list[str]], browser: Browser) -> None:
    """The search finds a word of a page."""
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.goto(site[0])
    page.get_by_role("textbox", name="Search").fill("changelog")
    page.locator(".md-search-result__link").first.wait_for()
    assert page.locator(".md-search-result__link").count() > 1
    page.close()


def test_every_page_can_be_edited(site: tuple[str, list[str]], browser: Browser) -> None:
    """Each page has a link to its source, and the footer shows the version."""
    page = browser.new_page()
    for path in ("/", "/concepts/"):
        page.goto(site[0] + path)
        assert "/edit/main/" in (page.locator("a.md-content__button").first.get_attribute("href") or "")
        assert "Rowkind 0." in page.locator(".md-copyright").inner_text()
    page.close()
