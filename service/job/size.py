"""Amounts of memory in a job file: `2g`, `1536m`, `2Gi`, `512 MB`."""

from __future__ import annotations

import re

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_WHOLE = re.compile(r"(\d+)\s*([kmgt])i?b?", re.IGNORECASE)
PATTERN = r"^\s*\d+\s*[kmgtKMGT][iI]?[bB]?\s*$"
"""The regular expression of an amount of memory, for the JSON Schema."""

ACCEPTED = "an amount of memory such as 2g, 1536m or 2Gi"


def parse(text: str) -> int:
    """Return the amount in bytes; every unit is a power of 1024. Raises ValueError if the text is not an amount."""
    found = _WHOLE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not {ACCEPTED}")
    return int(found[1]) * _UNITS[found[2].lower()]
