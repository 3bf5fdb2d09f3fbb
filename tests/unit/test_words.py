"""Words that must not be used again: private terms, riddles, idioms of another language; and long sentences in docs.

CONTRIBUTING.md ("How we write") lists the words to use instead. The test searches the docs, the alerts, the chart, and
the docstrings, comments and messages of the product.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reading import GENERATED, sentences_of

ROOT = Path(__file__).parents[2]
MOST_WORDS = 40
PRIVATE = {
    r"somebody|nobody|whoever|no ?one else": "the caller, the reader, the operator, a downstream operator",
    r"lets? go of|let go of|letting go of": "evict, drop",
    r"tak(?:e|es|en|ing) back|took back": "retract",
    r"(?:put|puts|putting) out": "emit",
    r"(?:let|lets|letting) out": "release, emit",
    r"(?:made|make|makes|making) anew|remade|remakes?": "recompute",
    r"(?:tell|tells|told|telling) apart": "distinguish",
    r"for ever|for good": "indefinitely, permanently",
    r"(?:to|can|cannot|could|may) be had": "available",
    r"mend|mends|mended|mending": "fix",
    r"agendas": "timer queues",
    r"nothing to complain about": "No problems found",
    r"as it comes|as they come\b": "with its defaults",
    r"further (?:down|up)\b": "downstream, upstream",
    r"what (?:becomes|became) of": "what happens to",
    r"(?:is|are|was|were) told": "is reported, is known",
    r"in vain": "without effect",
    r"no matter\b": "regardless of",
    r"of (?:its|their) own time": "of an event time",
    r"looked whether|looks whether": "checks whether",
    r"gets? over|got over": "recovers from",
    r"put into|puts into": "write to, add to",
    r"anew": "again",
}
"""Phrases that must not be written, and their replacements."""


def pages() -> list[Path]:
    """Return the pages that are written by hand."""
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name not in GENERATED]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


STAYS = re.compile(
    r"`[^`]*`"  # identifiers
    r'|"(values that may be )?taken back"|"made anew of the join below"'  # texts in checkpoints
    r'|left\.remade|"Anew"'  # identifiers in an outline and in an annotation
)
"""Text that is not searched."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text of the project that people read, with its place."""
    for path in [*pages(), *sorted((ROOT / "deploy").rglob("*.yaml")), *sorted((ROOT / "deploy").rglob("NOTES.txt"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line
    for folder in ("avro", "generators", "operators", "service"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
                if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == _PART_OF_TEXT:
                    yield f"{path.relative_to(ROOT)}:{token.start[0]}", " ".join(token.string.split())


_PART_OF_TEXT = getattr(tokenize, "FSTRING_MIDDLE", -1)


@pytest.mark.parametrize("phrase", PRIVATE)
def test_no_private_term_comes_back(phrase: str) -> None:
    """No text contains a phrase that has a replacement."""
    word = re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)
    found = [where for where, text in _all() if word.search(STAYS.sub("", text))]
    assert not found, f"write: {PRIVATE[phrase]}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_sentence_is_long(page: Path) -> None:
    """No sentence in the docs has more than 40 words."""
    long = [each for each in sentences_of(page.read_text()) if len(each.split()) > MOST_WORDS]
    assert not long


@cache
def _all() -> list[tuple[str, str]]:
    """Return all texts, read once for all phrases."""
    return list(texts())
