"""The browser in which the status page is looked at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
"""Where it is, if it is installed."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium without a window, while it is looked into."""
    with sync_playwright() as playwright:
        # The sandbox needs rights that a container does not give, and the page is our own.
        running = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield running
        running.close()
