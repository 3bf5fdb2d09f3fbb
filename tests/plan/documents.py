"""Plans as whole JSON documents, without the sentences: a file of `documents/` for each, named for its case.

The outlines of the cases have the values of a document, and these files its form. To pin one more, add an empty file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.plan.cases import FOLDER, Case

PATHS = sorted((Path(__file__).parent / "documents").glob("*.json"))
_WIDTH = 120


def document(path: Path) -> str:
    """What the file has to contain."""
    return f"{laid_out(Case.read(FOLDER / f'{path.stem}.txt').document())}\n"


def laid_out(value: Any, margin: str = "", key: str = "") -> str:
    """JSON in which a value stands on one line, with its key before it, if that is short enough."""
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
