"""Names that a plan generates, as they are shown to people."""

from __future__ import annotations

import pytest

from rowkind.service.plan.explain.display_names import display_text
from rowkind.service.plan.explain.records import TIED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SUM(b.v) AS `total#first` GROUP BY b.item, b.`#pane`", "SUM(b.v) AS `part of total` GROUP BY b.item, b.pane"),
        ("the watermark passes window_start#last + 10m", "the watermark passes last time of window_start + 10m"),
        ("until the clock passes #ends", "until the clock passes end"),
        ("m.#row BINARY", "m.digest of the row BINARY"),
        ("m.`#so far 2`", "m.`so far 2`"),
        ("no such name", "no such name"),
    ],
)
def test_made_up_names_are_said_in_words(text: str, words: str) -> None:
    """Generated names are shown as words, with backticks around several words in SQL."""
    assert display_text(text).replace(TIED, " ") == words
