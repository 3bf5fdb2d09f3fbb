"""The links of the docs that open a page's example in `rowkind play`."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from rowkind.service.web.play.tried import tried
from tests.docs.hooks import DOCS, hook

PAGES = (
    *("explanation/row-patterns.md", "explanation/time.md", "reference/sql.md"),
    *("tutorials/late-data.md", "tutorials/top-n.md"),
)


@pytest.mark.parametrize("uri", PAGES)
def test_the_example_of_a_page_gives_a_result_in_play(uri: str) -> None:
    """The link below the title contains a job and changes with which the page of `rowkind play` has a result."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    text = hook("play").on_page_markdown((DOCS / uri).read_text(), page)
    (fragment,) = re.findall(r"\(http://127\.0\.0\.1:8090/#([\w-]+)\)", text)
    packed = base64.urlsafe_b64decode(fragment + "=" * (-len(fragment) % 4))
    result = tried(json.loads(zlib.decompress(packed, wbits=-zlib.MAX_WBITS)), Path("job.yaml"))
    assert result["error"] is None
    assert result["changes"]


def test_a_page_without_an_example_has_no_link() -> None:
    """Other pages stay as they are."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/metrics.md"))
    assert hook("play").on_page_markdown("# Metrics\n\nText.\n", page) == "# Metrics\n\nText.\n"
