"""The documentation site in a browser: nothing is clipped or too wide, and nothing is loaded from other servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
WIDTHS = (360, 1300, 1600)
BIN = Path(sys.executable).parent
QUIET = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
"""mike calls mkdocs by its name."""
CLIPPED = """() => [...document.querySelectorAll(".md-typeset pre > code, .md-typeset img")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent.trim().slice(0, 60))"""
WIDER = "() => document.documentElement.scrollWidth > window.innerWidth + 1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the files of a folder are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=[0.1], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The address of the site, and the paths of its pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=QUIET)
    # The build is strict: a link to a file that is not in the repository fails it, too.
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [f"/{page.parent.relative_to(folder)}/".replace("/./", "/") for page in sorted(folder.rglob("index.html"))]
    with served(folder) as address:
        yield address, pages


def test_every_page_is_built(site: tuple[str, list[str]]) -> None:
    """Each page of docs/ is part of the site."""
    docs = ROOT / "docs"
    assert {f"/{page.relative_to(docs).with_suffix('')}/" for page in docs.rglob("*.md")} <= set(site[1])


def test_every_link_within_the_site_leads_to_a_page_and_its_heading(site: tuple[str, list[str]]) -> None:
    """Links and pictures are resolved as a browser does."""
    address, pages = site
    found = {path: urllib.request.urlopen(address + path).read().decode() for path in pages}
    broken = set()
    for path, page in found.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', page):
            target = urlsplit(urljoin(address + path, link))
            if f"{target.scheme}://{target.netloc}" != address:
                continue
            try:
                text = found.get(target.path) or urllib.request.urlopen(address + target.path).read().decode("latin-1")
            except HTTPError:
                broken.add((path, link))
            else:
                if target.fragment and f'id="{target.fragment}"' not in text:
                    broken.add((path, link))
    assert not broken


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


def test_a_reader_chooses_the_version(tmp_path: Path, browser: Browser) -> None:
    """The release publishes each version of the site beside the others, and every page has a selector."""

    def run(*command: str) -> None:
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, env=QUIET)

    run("git", "init", "--quiet")
    run("git", "config", "user.name", "reader")
    run("git", "config", "user.email", "reader@example.com")
    run("git", "commit", "--quiet", "--allow-empty", "--message", "a commit that the site is of")
    mike = str(BIN / "mike")
    for version in ("0.1.0", "0.2.0"):
        run(mike, "--quiet", "deploy", "--config-file", str(ROOT / "mkdocs.yml"), "--update-aliases", version, "latest")
    run("git", "checkout", "--quiet", "gh-pages")
    with served(tmp_path) as address:
        page = browser.new_page()
        page.goto(f"{address}/0.1.0/reference/metrics/")
        page.locator(".md-version__current").focus()
        page.locator(".md-version__link", has_text="0.2.0").click()
        page.wait_for_url(f"{address}/0.2.0/")
        page.close()


def test_every_page_can_be_edited(site: tuple[str, list[str]], browser: Browser) -> None:
    """Each page has a link to its source, and the footer shows the version."""
    page = browser.new_page()
    for path in ("/", "/explanation/changelogs/"):
        page.goto(site[0] + path)
        assert "/edit/main/" in (page.locator("a.md-content__button").first.get_attribute("href") or "")
        assert "Rowkind 0." in page.locator(".md-copyright").inner_text()
    page.close()
