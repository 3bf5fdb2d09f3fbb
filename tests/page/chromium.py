"""The browser for the tests of the status page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
"""The path of the browser, or None if it is not installed."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a headless Chromium."""
    with sync_playwright() as playwright:
        # The sandbox needs rights that a container does not have, and the page is Rowkind's own.
        running = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield running
        running.close()
