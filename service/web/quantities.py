"""Amounts, rates, sizes and durations as people read them."""

from __future__ import annotations

_DAY = 86_400
_HOUR = 3_600
_TIED = "\u00a0"
"""A space at which no line is broken."""


def amount(number: float) -> str:
    """A number of rows, short: 950, 12,300, 1.2 M, 3.4 G."""
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if abs(number) >= limit:
            return f"{number / limit:,.1f}{_TIED}{unit}"
    return f"{number:,.0f}"


def rate(per_second: float) -> str:
    """Rows a second; below ten with a decimal, as one row in two seconds is not none."""
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{amount(per_second)}/s"


def size(number: float) -> str:
    """Bytes: 0 B, 3.4 kB, 12.0 MB."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{number / limit:,.1f}{_TIED}{unit}"
    return f"{number:,.0f}{_TIED}B"


def duration(seconds: float) -> str:
    """Seconds, in the two units that matter: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h."""
    if seconds < 10:
        return f"{seconds:.1f}{_TIED}s"
    whole = round(seconds)
    for unit, smaller, name, small in ((_DAY, _HOUR, "d", "h"), (_HOUR, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit}{_TIED}{name}{f'{_TIED}{rest}{_TIED}{small}' if rest else ''}"
    return f"{whole}{_TIED}s"
