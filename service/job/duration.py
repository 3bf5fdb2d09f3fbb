"""Lengths of time in a job file: `30d`, `12h`, `90s`, `1500ms`, `1d 12h`."""

from __future__ import annotations

import re

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+)\s*(ms|s|min|m|h|d|w)\s*")
PATTERN = r"^\s*(\d+\s*(ms|s|min|m|h|d|w)\s*)+$"
"""The regular expression of a length of time, for the JSON Schema."""

ACCEPTED = "a length of time such as 30d, 12h, 15m, 90s or 1500ms"


def parse(text: str) -> int:
    """Return the length in ms.

    Raises ValueError if the text is not a length of time, if it has no unit, or if the length is zero.
    """
    parts = _PART.findall(text)
    number = text.strip()
    if number.isdecimal() and int(number):
        raise ValueError(f"{number} has no unit: write {number}ms, {number}s, {number}m, {number}h or {number}d")
    if not number.isdecimal() and (not parts or _PART.sub("", text).strip()):
        raise ValueError(f"{text!r} is not {ACCEPTED}")
    length = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not length:
        raise ValueError(
            "the length must be more than 0, or everything would expire at once; omit the setting for no limit"
        )
    return length


def show(length: int) -> str:
    """Format a length in ms with the largest unit, up to days, that divides it evenly."""
    for unit in ("d", "h", "m", "s"):
        if length % _UNITS[unit] == 0:
            return f"{length // _UNITS[unit]}{unit}"
    return f"{length}ms"
