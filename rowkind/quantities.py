"""Format amounts, rates, sizes and durations for people."""

from __future__ import annotations

_DAY = 86_400
_HOUR = 3_600
_TIED = "\u00a0"
"""A no-break space."""


def amount(number: float) -> str:
    """Format a number of rows briefly: 950, 12,300, 1.2 M, 3.4 G."""
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if abs(number) >= limit:
            return f"{number / limit:,.1f}{_TIED}{unit}"
    return f"{number:,.0f}"


def counted(number: float, noun: str) -> str:
    """Format a number with its noun: 1 row, 12,300 rows, 1.2 M rows."""
    return f"{amount(number)} {plural(number, noun)}"


def plural(number: float, noun: str) -> str:
    """Return the singular or the plural of a regular noun: 1 row, 2 rows."""
    return noun if number == 1 else f"{noun}s"


def rate(per_second: float) -> str:
    """Format a rate in rows per second. Below 10 it has a decimal, so that 1 row in 2 s does not show as 0."""
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{amount(per_second)}/s"


def size(number: float) -> str:
    """Format a size in bytes: 0 B, 3.4 kB, 12.0 MB."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{number / limit:,.1f}{_TIED}{unit}"
    return f"{number:,.0f}{_TIED}B"


def duration(seconds: float) -> str:
    """Format seconds in at most two units: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h."""
    if seconds < 10:
        return f"{seconds:.1f}{_TIED}s"
    whole = round(seconds)
    for unit, smaller, name, small in ((_DAY, _HOUR, "d", "h"), (_HOUR, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit}{_TIED}{name}{f'{_TIED}{rest}{_TIED}{small}' if rest else ''}"
    return f"{whole}{_TIED}s"


def unbroken(text: str) -> str:
    """Return the text with spaces at which a browser does not begin a new line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters. The end of a longer text is replaced by an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
