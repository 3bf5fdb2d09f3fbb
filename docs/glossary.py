"""Hook of the site: the first use of each term on a page becomes a link to the glossary."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

from mkdocs.structure.pages import Page

GLOSSARY = "reference/glossary.md"
UNLINKED = (GLOSSARY, "reference/licences.md", "reference/plan-document.md", "reference/sql-examples.md")
"""Pages without links: the glossary itself, and pages that consist of examples or lists."""
EVERYDAY = (
    *("block", "change", "expiry", "fold", "job", "layout", "lookup", "pane", "pass", "query", "rank", "refresh"),
    *("replay", "run", "session", "stage", "table", "task", "trait", "view", "window"),
)
"""Terms that are also everyday words, or on every page. They are linked by hand where their meaning matters."""

_SKIPPED = r"```.*?```|^(?: {4}|\t|#|<)[^\n]*$|`[^`\n]*`|!?\[[^\]]*\]\([^)]*\)|<[^>\n]*>"
"""Text without links: code, headings, HTML, and what is a link already."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Link each term where the page uses it first."""
    uri = page.file.src_uri
    return markdown if uri in UNLINKED else linked(markdown, posixpath.relpath(GLOSSARY, posixpath.dirname(uri) or "."))


def linked(markdown: str, glossary: str) -> str:
    """Return the text with a link to the page `glossary` at the first use of each term that has none."""
    seen = set(re.findall(rf"\({re.escape(glossary)}#([\w-]+)\)", markdown))

    def link(match: re.Match[str]) -> str:
        if not (used := match["term"]):
            return match[0]
        anchor = "-".join(used.lower().split())
        if anchor in seen:
            return match[0]
        seen.add(anchor)
        return f"[{match[0]}]({glossary}#{anchor})"

    return re.sub(
        rf"{_SKIPPED}|\b(?P<term>{_terms()})s?\b", link, markdown, flags=re.DOTALL | re.MULTILINE | re.IGNORECASE
    )


@cache
def _terms() -> str:
    """Return the terms as a pattern, longer ones first."""
    titles = re.findall(r"^### (.*)$", (Path(__file__).parent / GLOSSARY).read_text(encoding="utf-8"), re.MULTILINE)
    terms = sorted((each for each in titles if each.lower() not in EVERYDAY), key=len, reverse=True)
    return "|".join(re.escape(each).replace(r"\ ", r"\s") for each in terms)
