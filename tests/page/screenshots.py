"""`python -m tests.page.screenshots`: the pictures in the docs, of a job that the tests of the page have too."""

from __future__ import annotations

import io
import re
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console

from rowkind.service.cli.screen import screen
from rowkind.service.run.http import Guard, StatusServer
from rowkind.service.run.job_pages import JobPages
from rowkind.service.run.monitor import Monitor
from tests.page import scene
from tests.page.chromium import chromium

DOCS = Path(__file__).parents[2] / "docs" / "pictures"


def main() -> None:
    """Take all of them."""
    DOCS.mkdir(exist_ok=True)
    monitor = scene.lively(scene.job())
    terminal(monitor, DOCS / "terminal.svg")
    with chromium() as browser:
        page(browser, monitor, 1400, DOCS / "status.png")
        page(browser, monitor, 360, DOCS / "status-narrow.png")


def terminal(monitor: Monitor, file: Path) -> None:
    """What `rowkind run` shows on a terminal."""
    console = Console(record=True, width=110, file=io.StringIO(), force_terminal=True)
    console.print(screen(monitor.status()))
    drawn = console.export_svg(title="rowkind run job.yaml")
    # It would fetch its font from another server.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), "utf-8")


def page(browser: Browser, monitor: Monitor, width: int, file: Path) -> None:
    """The status page in a window of so many pixels: wide in light, narrow in dark."""
    with StatusServer(JobPages(monitor, {}), "127.0.0.1", 0, Guard()) as server:
        shown = browser.new_page(
            viewport={"width": width, "height": 1000}, color_scheme="light" if width > 1000 else "dark"
        )
        shown.goto(f"http://127.0.0.1:{server.port}/")
        shown.screenshot(path=file)
        shown.close()


if __name__ == "__main__":
    main()
