"""The links that the site adds to the docs: from the first use of a term to the glossary."""

from __future__ import annotations

from tests.docs.hooks import hook

BEFORE = """# Watermark

A `watermark`, [the TTL](g.md#ttl), a job.

    watermark

Watermarks. The watermark, the TTL.
"""


def test_the_first_use_of_a_term_is_a_link_to_the_glossary() -> None:
    """Later uses, code, headings and everyday words are not links; a link that the page has is not repeated."""
    after = BEFORE.replace("\nWatermarks.", "\n[Watermarks](g.md#watermark).")
    assert hook("glossary").linked(BEFORE, "g.md") == after
