"""What the site takes from the rest of the repository: pages that lie elsewhere, and links that lead there."""

from __future__ import annotations

import logging
import posixpath
import re
import tomllib
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "index.md": "README.md",
    "benchmarks.md": "tests/bench/README.md",
}
"""Pages that are kept beside what they are about."""

_LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)#\s]+)")

# A warning of MkDocs' own loggers fails a strict build.
log = logging.getLogger("mkdocs.plugins.repository")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show on every page which version it describes."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    config.copyright = f"Rowkind {version}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    for name, place in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / place).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Let links out of the docs lead to the repository on the web, and those to pages to the pages."""
    name, repository = page.file.src_uri, config.extra["repository"]
    if name in ELSEWHERE:
        page.edit_url = f"{repository}/edit/main/{ELSEWHERE[name]}"
    folder = (ROOT / ELSEWHERE.get(name, f"docs/{name}")).parent
    docs = ROOT / "docs"
    pages = {(ROOT / place).resolve(): each for each, place in ELSEWHERE.items()}

    def leads(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        place = pages.get(target) or (str(target.relative_to(docs)) if target.is_relative_to(docs) else None)
        if place is not None:
            return posixpath.relpath(place, posixpath.dirname(name) or ".")
        if not target.exists():
            log.warning("%s: there is no %s in the repository", name, match[1])
        return f"{repository}/blob/main/{target.relative_to(ROOT)}"

    return _LINK.sub(leads, markdown)
