"""`python -m tests.page.screenshots`: pictures for the docs, of the running demo and of an invented service."""

from __future__ import annotations

import io
import re
import sys
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from rowkind.service.cli.screen import screen
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from rowkind.service.web.play.server import PlayServer, examples
from rowkind.service.web.play.worker import Worker
from tests.page import jobs, scene
from tests.page.chromium import chromium
from tests.run.process import ROOT, until
from tests.terminal import COLUMNS, Terminal

DOCS = ROOT / "docs" / "pictures"
_MARGIN = 6
_BATCHES = 15
"""The number of batches after which the chart of recent batches is full enough."""


def main() -> None:
    """Take all pictures."""
    DOCS.mkdir(exist_ok=True)
    with Terminal(sys.executable, "-m", "rowkind", "demo") as demo:
        url = demo.until(r"status page is (http://\S+)")[1]
        demo.until("paid-orders: all")
        until(lambda: _batches(url) >= _BATCHES, "batches", lambda: demo.said)
        terminal(_status(url), DOCS / "terminal.svg")
        with chromium() as browser:
            page(browser, url, 1400, DOCS / "status.png", "section.sink")
            page(browser, url, 360, DOCS / "status-narrow.png", "section.sink article")
            all_jobs(browser, DOCS / "jobs.png")
            playground(browser, DOCS / "play.png")
        demo.press_ctrl_c()
        demo.ended()


def _batches(url: str) -> int:
    return min((len(each.batches) for each in _status(url).queries), default=0)


def _status(url: str) -> JobStatus:
    with urllib.request.urlopen(f"{url}status.json", timeout=10) as answer:
        return JobStatus.from_json(answer.read())


def terminal(status: JobStatus, file: Path) -> None:
    """Draw the output of `rowkind run` and `rowkind top` on a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    # The empty line leaves room for the descenders of the last one.
    console.print(screen(status), "")
    drawn = console.export_svg(title="rowkind top", theme=DEFAULT_TERMINAL_THEME)
    # The font would be loaded from another server.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")


def all_jobs(browser: Browser, file: Path) -> None:
    """Take a picture of a service with a running job, a job that keeps failing, and a refused job file."""
    monitors = {"shop": scene.lively(scene.job()), "stock": jobs.new()}
    with jobs.several(**monitors) as service, StatusServer(SeveralPages(service), "127.0.0.1", 0, Guard()) as server:
        jobs.failing(service.members[Path("jobs/stock.yaml")], 3)
        page(browser, f"http://127.0.0.1:{server.port}/", 1400, file, "main")


def playground(browser: Browser, file: Path) -> None:
    """Take a picture of `rowkind play` with a Top-N, of which the last change of the result is chosen."""
    with Worker(Path("job.yaml"), 60) as worker, PlayServer(examples(), worker, 0) as server:
        shown = browser.new_page(viewport={"width": 1300, "height": 1000}, color_scheme="light")
        shown.goto(f"http://127.0.0.1:{server.port}/")
        shown.get_by_label("Example").select_option("Top-N: the two best scores of each game")
        expect(shown.locator("#plan")).to_contain_text("rank_1", timeout=60_000)
        shown.locator("#result tbody button").last.click()
        picture(shown, file, "#plan article.scan")


def page(browser: Browser, url: str, width: int, file: Path, last: str) -> None:
    """Take a picture of the page at an address, `width` pixels wide."""
    shown = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme="light")
    shown.goto(url)
    picture(shown, file, last)


def picture(shown: Page, file: Path, last: str) -> None:
    """Take a picture of an open page, down to the end of the first element that `last` selects, and close the page."""
    width = shown.evaluate("window.innerWidth")
    end = shown.locator(last).first.bounding_box()
    assert end is not None, f"{shown.url} has {last}"
    height = end["y"] + end["height"] + _MARGIN
    shown.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    shown.close()


if __name__ == "__main__":
    main()
