"""A browser for the tests of the status page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium without a window. Without one the tests skip, unless ROWKIND_REQUIRE_BROWSER=1, as in CI."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("ROWKIND_REQUIRE_BROWSER") == "1":
            pytest.fail("there is no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        # The sandbox needs rights that a container does not give, and the page is our own.
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
