"""Kernels of JSON: text as Spark's `from_json` reads it, with its own rules for what does not fit the schema.

The parser takes what Jackson takes there: also text in single quotes, and either NaN and infinity, as `from_json` does,
or control characters inside of text, as `get_json_object` and its kin do. It is one step per value: no library reads
the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from rowkind.service.execute.kernels.kernel import Kernel, each
from rowkind.service.execute.kernels.texts import double_text

MACROS = ()
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])")
_WORD = re.compile(r"(true|false|null|NaN|[+-]?(?:Infinity|INF))(?![\w])")
_PLAIN_WORD = re.compile(r"(true|false|null)(?![\w])")
_TEXT = {quote: re.compile(rf"[^\\{quote}\x00-\x1f]*") for quote in "\"'"}
_ANY_TEXT = {quote: re.compile(rf"[^\\{quote}]*") for quote in "\"'"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_ODD = {"NaN": "NaN", "Infinity": "Infinity", "+Infinity": "Infinity", "INF": "Infinity", "+INF": "Infinity",
        "-Infinity": "-Infinity", "-INF": "-Infinity"}  # fmt: skip
_WIDE = Context(prec=400)

Parsed = tuple[str, Any, int, int]
"""What a value is (object, array, text, whole, number, word), what is in it, and from where to where it stands."""


class _MalformedError(Exception):
    """The text is no JSON."""


def _parse(text: str, at: int, schema: bool) -> Parsed:
    at = _skip(text, at)
    letter = text[at : at + 1]
    if letter == "{":
        return _members(text, at, schema)
    if letter == "[":
        return _items(text, at, schema)
    if letter in ('"', "'"):
        value, end = _quoted(text, at, schema)
        return "text", value, at, end
    if number := _NUMBER.match(text, at):
        return "number" if number[1] or number[2] else "whole", number[0], at, number.end()
    if word := (_WORD if schema else _PLAIN_WORD).match(text, at):
        return "word", word[0], at, word.end()
    raise _MalformedError


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "it fits nothing too"
    return found.end()


def _members(text: str, start: int, schema: bool) -> Parsed:
    found: list[tuple[str, Parsed]] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}" or found:
        if text[at : at + 1] not in ('"', "'"):
            raise _MalformedError
        name, at = _quoted(text, at, schema)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _MalformedError
        value = _parse(text, at + 1, schema)
        found.append((name, value))
        at = _skip(text, value[3])
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return "object", found, start, _closed(text, at, "}")


def _items(text: str, start: int, schema: bool) -> Parsed:
    found: list[Parsed] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]" or found:
        found.append(_parse(text, at, schema))
        at = _skip(text, found[-1][3])
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return "array", found, start, _closed(text, at, "]")


def _closed(text: str, at: int, bracket: str) -> int:
    if text[at : at + 1] != bracket:
        raise _MalformedError
    return at + 1


def _quoted(text: str, start: int, schema: bool) -> tuple[str, int]:
    quote, at, found = text[start], start + 1, []
    while True:
        plain = (_TEXT if schema else _ANY_TEXT)[quote].match(text, at)
        assert plain is not None, "it fits nothing too"
        found.append(plain[0])
        at = plain.end()
        letter = text[at : at + 1]
        if letter == quote:
            return _joined("".join(found)), at + 1
        if letter != "\\":
            raise _MalformedError
        escape = text[at + 1 : at + 2]
        if escape == "u" and re.match(r"[0-9A-Fa-f]{4}", text[at + 2 : at + 6]):
            found.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
        elif escape in _ESCAPES and escape:
            found.append(_ESCAPES[escape])
            at += 2
        else:
            raise _MalformedError


def _joined(text: str) -> str:
    """Halves of surrogate pairs as one letter; a half alone is a question mark, as Java writes it."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return re.sub("[\ud800-\udfff]", "?", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


class _UnfitError(Exception):
    """A value does not fit the schema."""


def _fit(part: Parsed, schema: Any) -> Any:
    """A value for DuckDB's JSON; raises _UnfitError where it is none of the schema's type."""
    kind, value = part[:2]
    if part[:2] == ("word", "null"):
        return None
    if isinstance(schema, dict):
        if kind != "object":
            raise _UnfitError
        return _struct(value, schema)
    if isinstance(schema, list):
        if schema[0] == "map":
            if kind != "object":
                raise _UnfitError
            return {name: _fit(inner, schema[1]) for name, inner in value}
        if kind != "array":
            raise _UnfitError
        return [_fit(inner, schema[1]) for inner in value]
    if schema == "STRING":
        return value if kind == "text" else _compact(part)
    return _scalar(kind, value, schema)


def _struct(members: list[tuple[str, Parsed]], schema: dict[str, Any]) -> dict[str, Any]:
    """All fields of a struct, NULL where one is missing or does not fit; of several of a name the last counts."""
    found: dict[str, Any] = dict.fromkeys(schema)
    for name, part in members:
        if name in schema:
            try:
                found[name] = _fit(part, schema[name])
            except _UnfitError:
                found[name] = None
    return found


def _scalar(kind: str, value: str, schema: str) -> Any:
    if schema == "BOOLEAN" and kind == "word" and value in ("true", "false"):
        return value == "true"
    if schema in ("INT", "BIGINT") and kind == "whole":
        bits = 31 if schema == "INT" else 63
        if -(2**bits) <= int(value) < 2**bits:
            return int(value)
    if schema in ("FLOAT", "DOUBLE"):
        if kind in ("whole", "number"):
            return str(int(value)) if kind == "whole" else value
        if kind in ("text", "word") and value in _ODD:
            return _ODD[value]
    if schema.startswith("DECIMAL"):
        return _decimal(kind, value, schema)
    raise _UnfitError


def _decimal(kind: str, value: str, schema: str) -> str | None:
    precision, scale = (int(digits) for digits in schema[8:-1].split(","))
    try:
        if kind not in ("whole", "number", "text"):
            raise _UnfitError
        number = Decimal(value.replace(",", "") if kind == "text" else value)
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        raise _UnfitError from None
    return format(rounded, "f") if abs(rounded) < Decimal(10) ** (precision - scale) else None


@lru_cache(maxsize=64)
def _schema(text: str) -> Any:
    return json.loads(text)


def _read(text: str, schema_text: str) -> str | None:
    """JSON that fits the schema to the letter; a struct is never missing, its fields are where the text is no JSON."""
    schema = _schema(schema_text)
    nothing = dict.fromkeys(schema) if isinstance(schema, dict) else None
    found: Any = nothing
    try:
        if _skip(text, 0) == len(text):
            return None
        root = _parse(text, 0, schema=True)
        if isinstance(schema, list) and schema[0] == "array" and root[0] == "object" and isinstance(schema[1], dict):
            root = ("array", [root], root[2], root[3])
        found = _fit(root, schema)
        found = nothing if found is None else found
    except (_MalformedError, _UnfitError, RecursionError):
        found = nothing
    return None if found is None else json.dumps(found)


def _root(text: str) -> Parsed | None:
    try:
        return _parse(text, 0, schema=False)
    except (_MalformedError, RecursionError):
        return None


def _keys(text: str) -> list[str] | None:
    root = _root(text)
    return [name for name, _ in root[1]] if root and root[0] == "object" else None


def _length(text: str) -> int | None:
    root = _root(text)
    return len(root[1]) if root and root[0] == "array" else None


def _found(text: str, path: str) -> str | None:
    """What stands at the end of a path of names and numbers, as text; of equal names the first that leads there."""
    root = _root(text)
    part = root and _at(root, _schema(path))
    if part is None:
        return None
    return str(part[1]) if part[0] == "text" else _compact(part)


def _at(part: Parsed, steps: list[str | int]) -> Parsed | None:
    """A null leads nowhere."""
    for step in steps[:1]:
        if isinstance(step, int):
            inner = part[1][step : step + 1] if part[0] == "array" else []
        else:
            inner = [value for name, value in part[1] if name == step] if part[0] == "object" else []
        known = (_at(value, steps[1:]) for value in inner if value[:2] != ("word", "null"))
        return next((found for found in known if found is not None), None)
    return part


def _compact(part: Parsed) -> str:
    match part[0]:
        case "object":
            return f"{{{','.join(f'{_escaped(name)}:{_compact(inner)}' for name, inner in part[1])}}}"
        case "array":
            return f"[{','.join(map(_compact, part[1]))}]"
        case "text":
            return _escaped(part[1])
        case "whole":
            return str(int(part[1]))
        case "word" if part[1] in _ODD:
            return f'"{_ODD[part[1]]}"'
        case "number":
            value = float(part[1])
            odd = '"Infinity"' if value > 0 else '"-Infinity"'
            return double_text(value) if math.isfinite(value) else odd
    return str(part[1])


def _escaped(text: str) -> str:
    """What is beyond 16 bits is written as the two halves, as Jackson does where it hands JSON on."""
    plain = text.replace(_BACK, _BACK * 2).replace(_QUOTE, _BACK + _QUOTE)
    return f'"{_TO_ESCAPE.sub(_escape, plain)}"'


def _escape(found: re.Match[str]) -> str:
    halves = found[0].encode("utf-16-be").hex().upper()
    return _ESCAPED.get(found[0]) or "".join(f"{_BACK}u{halves[at : at + 4]}" for at in range(0, len(halves), 4))


_TO_ESCAPE = re.compile("[\x00-\x1f\U00010000-\U0010ffff]")
_BACK, _QUOTE = "\\", '"'
_ESCAPED = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


KERNELS: Mapping[str, Kernel] = {
    "spark_from_json": each(_read, "VARCHAR", "VARCHAR", "VARCHAR"),
    "spark_short_decimal": each(lambda text: str(Decimal(text)), "VARCHAR", "VARCHAR"),
    "spark_json_found": each(_found, "VARCHAR", "VARCHAR", "VARCHAR"),
    "spark_json_length": each(_length, "VARCHAR", "INTEGER"),
    "spark_json_keys": each(_keys, "VARCHAR", "VARCHAR[]"),
}
