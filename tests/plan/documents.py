"""Plans as complete JSON documents without sentences: one file in `documents/` each, named after its case.

The outlines of the cases have the values of a document, and these files show its form. To add one, create an empty
file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.plan.cases import FOLDER, Case

PATHS = sorted((Path(__file__).parent / "documents").glob("*.json"))
_WIDTH = 120


def document(path: Path) -> str:
    """Return the content that the file must have."""
    return f"{laid_out(Case.read(FOLDER / f'{path.stem}.txt').document())}\n"


def laid_out(value: Any, margin: str = "", key: str = "") -> str:
    """Return formatted JSON in which a value is on one line, with its key, if it fits."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(key) + len(line) <= _WIDTH:
        return key + line
    inner = f"{margin}  "
    if isinstance(value, list):
        first, last, parts = "[", "]", [laid_out(each, inner) for each in value]
    else:
        first, last = "{", "}"
        parts = [laid_out(each, inner, f"{json.dumps(name)}: ") for name, each in value.items()]
    return f"{key}{first}\n{inner}{f',{chr(10)}{inner}'.join(parts)}\n{margin}{last}"
