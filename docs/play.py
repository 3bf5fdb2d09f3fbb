"""Hook of the site: a page with an example has a link that opens the example in `rowkind play`."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PLAY = "http://127.0.0.1:8090/#"
"""The address of `rowkind play` with its usual port."""

EXAMPLES = {
    "explanation/row-patterns.md": "dips",
    "explanation/time.md": "takings",
    "reference/sql.md": "school",
}
"""Pages that describe an example of the repository."""

_JOB = re.compile(r'^```yaml title="[^"]+"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_CHANGES = re.compile(r'^```json title="changes.jsonl"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# .*\n", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Add the link below the page's title, for the first job of the page or for the example that it describes."""
    job, changes = _JOB.search(markdown), _CHANGES.search(markdown)
    if job and changes:
        url = link(job[1], changes[1])
    elif name := EXAMPLES.get(page.file.src_uri):
        folder = ROOT / "examples" / name
        url = link((folder / "job.yaml").read_text("utf-8"), (folder / "changes.jsonl").read_text("utf-8"))
    else:
        return markdown
    text = f"\n*Run `rowkind play`, then [open this page's example]({url}) in it.*\n"
    return _TITLE.sub(lambda title: title[0] + text, markdown, count=1)


def link(job: str, changes: str) -> str:
    """Return the address at which the page of `rowkind play` shows this job and these changes."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(json.dumps({"job": job, "changes": changes, "sink": None}).encode()) + packer.flush()
    return PLAY + base64.urlsafe_b64encode(packed).decode().rstrip("=")
