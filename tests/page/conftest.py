"""A browser for the tests of the status page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.page.chromium import PROGRAM, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium. Without one the tests are skipped, or fail if ROWKIND_REQUIRE_BROWSER=1, as in CI."""
    if PROGRAM is None:
        if os.environ.get("ROWKIND_REQUIRE_BROWSER") == "1":
            pytest.fail("there is no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium (apt-get install chromium)")
    with chromium() as running:
        yield running
