"""The formats of FORMAT_STRING: those conversions of Java's `Formatter` that can be reproduced for every value.

A format is parsed when the query is planned. Each conversion, such as `%d`, is translated to DuckDB SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts import cast
from rowkind.service.plan.scalar.typed import Typed, text_literal
from rowkind.service.plan.scalar.types import STRING, family

NOTE = "%s %d %x %X %f %% %n, a width with - or 0, digits as in %.2f."
_FORM = re.compile(r"%(?:(\d+)\$)?([-0,+]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])|([^%]+)", re.DOTALL)


def write(arguments: Sequence[Typed]) -> str:
    """Return SQL for the formatted text. Raises Refusal."""
    format_, *values = arguments
    pieces = []
    at, taken = 0, 0
    text = str(format_.literal)
    while at < len(text):
        found = _FORM.match(text, at)
        if found is None:
            raise Refusal(f"{text[at:]!r} in the format {text!r} is not supported; supported: {NOTE}")
        at = found.end()
        number, flags, width, digits, letter, plain = found.groups()
        if plain or letter in "%n":
            if not plain and (flags or width or digits):
                raise Refusal(f"{found[0]} in the format {text!r} is not supported; supported: {NOTE}")
            pieces.append(text_literal(plain or {"%": "%", "n": "\n"}[letter]))
            continue
        taken += not number
        place = int(number) if number else taken
        if not 1 <= place <= len(values):
            raise Refusal(f"the format {text!r} refers to more values than the {len(values)} that follow it")
        pieces.append(_padded(_one(values[place - 1], letter, flags, digits, found[0]), flags, width, letter))
    return f"({' || '.join(pieces)})" if pieces else "''"


def _one(value: Typed, letter: str, flags: str, digits: str | None, form: str) -> str:
    """Return SQL for one value as text. NULL becomes the text `null`."""
    kind = family(value.type)
    if letter == "s" and not set(flags) & set("0,+") and digits is None and kind in _AS_TEXT:
        text = cast(value.sql, value.type, STRING)
        return f"COALESCE({text}, 'null')"
    if letter == "d" and kind == "integer" and digits is None and not ("0" in flags and "," in flags):
        text = f"CAST({value.sql} AS VARCHAR)"
        if "," in flags:
            text = f"spark_grouped_decimal({text}, 0)"
    elif letter in "xX" and kind == "integer" and digits is None and not set(flags) & set(",+"):
        bits = 32 if value.type.sql == "INT" else 64
        text = f"to_hex({value.sql} & {2**32 - 1}::BIGINT)" if bits == 32 else f"to_hex({value.sql})"
        text = f"upper({text})" if letter == "X" else f"lower({text})"
    elif letter == "f" and kind == "float" and "0" not in flags:
        text = _fixed(value, int(digits or "6"), grouped="," in flags)
    else:
        raise Refusal(f"{form} for type {value.type.sql} is not supported: write a CAST, or one of {NOTE}")
    if "+" in flags:
        signed = f"starts_with({text}, '-')" + (f" OR isnan({value.sql})" if kind == "float" else "")
        text = f"CASE WHEN {signed} THEN {text} ELSE '+' || {text} END"
    # The text for NULL is truncated and written like any other text.
    null = "NULL" if letter == "X" else "null"[: int(digits) if digits else 4]
    return f"COALESCE({text}, '{null}')"


_AS_TEXT = ("string", "integer", "float", "boolean", "null")


def _fixed(value: Typed, digits: int, *, grouped: bool) -> str:
    """Return SQL for a value with this many digits after the decimal point; its decimal form is rounded half up."""
    sql = value.sql
    text = cast(sql, value.type, STRING)
    plain = f"spark_fixed({text}, {digits}, {'TRUE' if grouped else 'FALSE'})"
    return f"CASE WHEN isfinite({sql}) THEN {plain} ELSE {text} END"


def _padded(text: str, flags: str, width: str | None, letter: str) -> str:
    if width is None:
        if "-" in flags or "0" in flags:
            raise Refusal("in a format, the flags - and 0 need a width")
        return f"({text})"
    spaces = f"repeat(' ', greatest({width} - spark_units({text}), 0))"
    if "-" in flags:
        return f"({text} || {spaces})"
    if "0" in flags and letter != "s":
        zeros = f"repeat('0', greatest({width} - length({text}), 0))"
        signed = f"({text})[1:1] || {zeros} || ({text})[2:]"
        padded = (
            f"CASE WHEN starts_with({text}, '-') OR starts_with({text}, '+') THEN {signed} ELSE {zeros} || {text} END"
        )
        return f"(CASE WHEN lower({text}) = 'null' THEN {spaces} || {text} ELSE {padded} END)"
    return f"({spaces} || {text})"
