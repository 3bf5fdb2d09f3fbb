"""Translates Spark's patterns for dates and times into DuckDB's formats.

A pattern is checked when the query is planned. When text is read, a regular expression checks the text of each field,
because DuckDB accepts more texts than Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.typed import text_literal
from rowkind.service.plan.scalar.types import failure

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_FULL = "January|February|March|April|May|June|July|August|September|October|November|December"

_FIELDS: dict[str, tuple[str, str | None]] = {
    "yyyy": ("%Y", r"\d{4}"), "y": ("%Y", None), "yy": ("%y", None),
    "MM": ("%m", r"\d{2}"), "M": ("%-m", r"\d{1,2}"), "MMM": ("%b", _MONTHS), "MMMM": ("%B", _FULL),
    "dd": ("%d", r"\d{2}"), "d": ("%-d", r"\d{1,2}"), "D": ("%-j", None), "DDD": ("%j", None),
    "E": ("%a", None), "EE": ("%a", None), "EEE": ("%a", None), "EEEE": ("%A", None),
    "HH": ("%H", r"\d{2}"), "H": ("%-H", r"\d{1,2}"), "hh": ("%I", r"\d{2}"), "h": ("%-I", r"\d{1,2}"),
    "mm": ("%M", r"\d{2}"), "m": ("%-M", r"\d{1,2}"), "ss": ("%S", r"\d{2}"), "s": ("%-S", r"\d{1,2}"),
    "SSS": ("%g", r"\d{1,3}"), "SSSSSS": ("%f", r"\d{1,6}"), "a": ("%p", "AM|PM|am|pm"),
}  # fmt: skip
_FAR_YEAR = r"(\+\d{5,6}|-\d{4,6})"
"""Matches years that are not written with four digits."""

"""Maps each run of letters in a Spark pattern to the DuckDB format, and to a regular expression for the text that Spark
reads as this field. The regular expression is None if the letters can be used only for writing.
"""


def write(moment: str, pattern: str) -> str:
    """Return SQL that writes a TIMESTAMP as text, as a Spark pattern specifies. Raises Refusal."""
    pieces = [(field, text.replace("%", "%%")) for field, text in _pieces(pattern)]
    found = "".join(text if field is None else _field(field, pattern)[0] for field, text in pieces)
    # A year that does not have four digits is written with as many digits as it has.
    far = "".join(
        text if field is None else "%-Y" if field == "y" else _field(field, pattern)[0] for field, text in pieces
    )
    return formatted(moment, found, far)


def formatted(moment: str, format_: str, far: str = "") -> str:
    """Return SQL that writes a TIMESTAMP as text in a format of DuckDB's `strftime`.

    `far` is the format for years that do not have four digits.
    """
    return f"spark_written({moment}, {text_literal(format_)}, {text_literal(far or format_)})"


def read(text: str, pattern: str, *, strict: bool) -> str:
    """Return SQL that reads a TIMESTAMP from text, as a Spark pattern specifies. Raises Refusal.

    For text that does not match the pattern, the SQL fails or, if `strict` is False, returns NULL.
    """
    format_, shape, far = "", "", ""
    letters: list[str] = []
    for field, literal in _pieces(pattern):
        if field is None:
            format_ += literal.replace("%", "%%")
            shape += re.escape(literal)
            far += re.escape(literal)
            continue
        known, texts = _field(field, pattern)
        if texts is None:
            raise Refusal(f"in the pattern {pattern!r}, {field} can be used for writing but not for reading")
        format_ += known
        # Month names are case-insensitive.
        any_case = f"((?i:{texts}))" if field[0] in "Ma" and "|" in texts else f"({texts})"
        shape += any_case
        far += _FAR_YEAR if field[0] == "y" else any_case
        letters.append(field[0])
    _check_parts(letters, pattern)
    parsed = f"{'' if strict else 'try_'}strptime({text}, {text_literal(format_)})"
    reason = f"'''' || {text} || ''' does not match the pattern {pattern.replace(chr(39), chr(39) * 2)}'"
    bad = failure(reason, "TIMESTAMP") if strict else "NULL"
    matches = f"regexp_full_match({text}, {text_literal(shape)})"
    beyond = f"make_timestamp(spark_far_read({text}, {text_literal(far)}, '{''.join(letters)}'))"
    return f"(CASE WHEN {text} IS NULL THEN NULL WHEN {matches} THEN {parsed} ELSE COALESCE({beyond}, {bad}) END)"


def _check_parts(letters: list[str], pattern: str) -> None:
    if len(set(letters)) < len(letters):
        raise Refusal(f"the pattern {pattern!r} contains the same field twice")
    if "y" not in letters or ("d" in letters and "M" not in letters):
        raise Refusal(
            f"the pattern {pattern!r} needs a complete date: a year, a year and a month, or a year, a month and a day"
        )
    if ("h" in letters) != ("a" in letters) or ("h" in letters and "H" in letters):
        raise Refusal(
            f"in the pattern {pattern!r}, h and a must be used together and without H; write H for hours from 0 to 23"
        )
    if "d" not in letters and set("Hhms") & set(letters):
        raise Refusal(f"the pattern {pattern!r} has a time without a complete date")
    if ("s" in letters and "m" not in letters) or ("S" in letters and "s" not in letters):
        raise Refusal(f"the pattern {pattern!r} has a gap between the fields of the time")
    if "m" in letters and not set("Hh") & set(letters):
        raise Refusal(f"the pattern {pattern!r} has no hour")


def _field(field: str, pattern: str) -> tuple[str, str | None]:
    known = _FIELDS.get(field)
    if known is None:
        raise Refusal(f"{field} in the pattern {pattern!r} is not supported; supported: {', '.join(_FIELDS)}")
    return known


def _pieces(pattern: str) -> Iterator[tuple[str | None, str]]:
    """Yield a pattern's runs of letters and the plain text between these runs, which is unquoted."""
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter.isascii() and letter.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            yield pattern[at:end], ""
            at = end
        elif letter == "'":
            end = at + 1
            text = ""
            while True:
                if end >= len(pattern):
                    raise Refusal(f"a quotation mark in the pattern {pattern!r} is not closed")
                if pattern[end] == "'":
                    if pattern[end + 1 : end + 2] != "'":
                        break
                    end += 1
                text += pattern[end]
                end += 1
            yield None, text or "'"
            at = end + 1
        elif letter in "[]{}#":
            raise Refusal(f"{letter} in the pattern {pattern!r} is not supported: put it in quotes")
        else:
            yield None, letter
            at += 1
