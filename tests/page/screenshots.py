"""`python -m tests.page.screenshots`: the pictures in the docs, of the demo's job as it runs."""

from __future__ import annotations

import io
import re
import tempfile
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console

from rowkind.service.cli.screen import screen
from rowkind.service.run.status import JobStatus
from tests.page.chromium import chromium
from tests.run.process import ROOT, Rowkind, until

DOCS = ROOT / "docs" / "pictures"
JOB = ROOT / "examples" / "orders-payments" / "job.yaml"
_BATCHES = 15
"""Half of those that the demo has."""


def main() -> None:
    """Take all of them."""
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Rowkind(Path(folder), "dev", "demo", str(JOB)) as demo:
        url = f"http://127.0.0.1:{demo.port}/"
        until(lambda: _batches(url) >= _BATCHES, "batches", lambda: demo.error)
        terminal(_status(url), DOCS / "terminal.svg")
        with chromium() as browser:
            page(browser, url, 1400, DOCS / "status.png")
            page(browser, url, 360, DOCS / "status-narrow.png")


def _batches(url: str) -> int:
    return min((len(each.batches) for each in _status(url).queries), default=0)


def _status(url: str) -> JobStatus:
    with urllib.request.urlopen(f"{url}status.json", timeout=10) as answer:
        return JobStatus.from_json(answer.read())


def terminal(status: JobStatus, file: Path) -> None:
    """What `rowkind run` and `rowkind top` show on a terminal."""
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(screen(status))
    drawn = console.export_svg(title="rowkind top")
    # It would fetch its font from another server.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")


def page(browser: Browser, url: str, width: int, file: Path) -> None:
    """The status page in a window of so many pixels: wide in light, narrow in dark."""
    shown = browser.new_page(
        viewport={"width": width, "height": 1000}, color_scheme="light" if width > 1000 else "dark"
    )
    shown.goto(url)
    shown.screenshot(path=file)
    shown.close()


if __name__ == "__main__":
    main()
