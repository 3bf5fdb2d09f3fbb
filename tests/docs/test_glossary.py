"""The links that the site adds to the docs: from the first use of a term to the glossary."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
BEFORE = """# Watermark

A `watermark`, [the TTL](g.md#ttl), a job.

    watermark

Watermarks. The watermark, the TTL.
"""


def test_the_first_use_of_a_term_is_a_link_to_the_glossary() -> None:
    """Later uses, code, headings and everyday words are not links; a link that the page has is not repeated."""
    # docs/ is no package.
    spec = importlib.util.spec_from_file_location("glossary", DOCS / "glossary.py")
    assert spec
    assert spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    after = BEFORE.replace("\nWatermarks.", "\n[Watermarks](g.md#watermark).")
    assert hook.linked(BEFORE, "g.md") == after
