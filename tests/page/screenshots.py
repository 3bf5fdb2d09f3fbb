"""`python -m tests.page.screenshots`: pictures for the docs, of the demo as it runs and of a made up service."""

from __future__ import annotations

import io
import re
import sys
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from rowkind.service.cli.screen import screen
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from tests.page import jobs, scene
from tests.page.chromium import chromium
from tests.run.process import ROOT, until
from tests.terminal import COLUMNS, Terminal

DOCS = ROOT / "docs" / "pictures"
_MARGIN = 12
_BATCHES = 15
"""After so many, the view of recent batches is full enough."""


def main() -> None:
    """Take all of them."""
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
        demo.press_ctrl_c()
        demo.ended()


def _batches(url: str) -> int:
    return min((len(each.batches) for each in _status(url).queries), default=0)


def _status(url: str) -> JobStatus:
    with urllib.request.urlopen(f"{url}status.json", timeout=10) as answer:
        return JobStatus.from_json(answer.read())


def terminal(status: JobStatus, file: Path) -> None:
    """What `rowkind run` and `rowkind top` show on a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    # The empty line leaves room for the descenders of the last one.
    console.print(screen(status), "")
    drawn = console.export_svg(title="rowkind top", theme=DEFAULT_TERMINAL_THEME)
    # It would fetch its font from another server.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")


def all_jobs(browser: Browser, file: Path) -> None:
    """The page of a service: a job that works, one that keeps ending, and one that is refused."""
    monitors = {"shop": scene.lively(scene.job()), "stock": jobs.new()}
    with jobs.several(**monitors) as service, StatusServer(SeveralPages(service), "127.0.0.1", 0, Guard()) as server:
        jobs.failing(service.members[Path("jobs/stock.yaml")], 3)
        page(browser, f"http://127.0.0.1:{server.port}/", 1400, file, "main")


def page(browser: Browser, url: str, width: int, file: Path, last: str) -> None:
    """A page in a window of so many pixels, down to the end of the first element that is named `last`."""
    shown = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme="light")
    shown.goto(url)
    end = shown.locator(last).first.bounding_box()
    assert end is not None, f"{url} has {last}"
    height = end["y"] + end["height"] + _MARGIN
    shown.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    shown.close()


if __name__ == "__main__":
    main()
