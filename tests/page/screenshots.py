"""`python -m tests.page.screenshots`: pictures for the docs, of the running demo and of an invented service."""

from __future__ import annotations

import io
import re
import tempfile
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console

from rowkind.service.cli.screen import screen
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.multi.pages import SeveralPages
from rowkind.service.web.http import Guard, StatusServer
from tests.page import jobs, scene
from tests.page.chromium import chromium
from tests.run.process import ROOT, Rowkind, until

DOCS = ROOT / "docs" / "pictures"
JOB = ROOT / "examples" / "orders-payments" / "job.yaml"
_BATCHES = 15
"""Half of the demo's batches."""


def main() -> None:
    """Take all pictures."""
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Rowkind(Path(folder), "dev", "demo", str(JOB)) as demo:
        url = f"http://127.0.0.1:{demo.port}/"
        until(lambda: _batches(url) >= _BATCHES, "batches", lambda: demo.error)
        terminal(_status(url), DOCS / "terminal.svg")
        with chromium() as browser:
            page(browser, url, 1400, DOCS / "status.png")
            page(browser, url, 360, DOCS / "status-narrow.png")
            all_jobs(browser, DOCS / "jobs.png")


def _batches(url: str) -> int:
    return min((len(each.batches) for each in _status(url).queries), default=0)


def _status(url: str) -> JobStatus:
    with urllib.request.urlopen(f"{url}status.json", timeout=10) as answer:
        return JobStatus.from_json(answer.read())


def terminal(status: JobStatus, file: Path) -> None:
    """Draw the output of `rowkind run` and `rowkind top` on a terminal."""
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(screen(status))
    drawn = console.export_svg(title="rowkind top")
    # The font would be loaded from another server.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")


def all_jobs(browser: Browser, file: Path) -> None:
    """Take a picture of a service with a running job, a job that keeps failing, and a refused job file."""
    monitors = {"shop": scene.lively(scene.job()), "stock": jobs.new()}
    with jobs.several(**monitors) as service, StatusServer(SeveralPages(service), "127.0.0.1", 0, Guard()) as server:
        jobs.failing(service.members[Path("jobs/stock.yaml")], 3)
        page(browser, f"http://127.0.0.1:{server.port}/", 1400, file, height=580)


def page(browser: Browser, url: str, width: int, file: Path, height: int = 1000) -> None:
    """Take a picture of a page in a window of this size in pixels: wide in light mode, narrow in dark mode."""
    shown = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="light" if width > 1000 else "dark"
    )
    shown.goto(url)
    shown.screenshot(path=file)
    shown.close()


if __name__ == "__main__":
    main()
