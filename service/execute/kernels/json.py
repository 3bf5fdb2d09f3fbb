"""Kernels of JSON: text as Spark's `from_json` reads it, with its own rules for what does not fit the schema.

The parser takes what Jackson takes there: also text in single quotes, and NaN and infinity. It is one step per value,
as no library tells where in the text a value stood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from rowkind.service.execute.kernels.kernel import Kernel, each

MACROS = ()
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])")
_WORD = re.compile(r"(true|false|null|NaN|[+-]?(?:Infinity|INF))(?![\w])")
_TEXT = {quote: re.compile(rf"[^\\{quote}\x00-\x1f]*") for quote in "\"'"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_ODD = {"NaN": "NaN", "Infinity": "Infinity", "+Infinity": "Infinity", "INF": "Infinity", "+INF": "Infinity",
        "-Infinity": "-Infinity", "-INF": "-Infinity"}  # fmt: skip
_WIDE = Context(prec=400)

Part = tuple[str, Any, int, int]
"""What a value is (object, array, text, whole, number, word), what is in it, and from where to where it stands."""


class _Malformed(Exception):
    """The text is no JSON."""


def _parse(text: str, at: int) -> Part:
    at = _skip(text, at)
    letter = text[at : at + 1]
    if letter == "{":
        return _members(text, at)
    if letter == "[":
        return _items(text, at)
    if letter in ('"', "'"):
        value, end = _quoted(text, at)
        return "text", value, at, end
    if number := _NUMBER.match(text, at):
        return "number" if number[1] or number[2] else "whole", number[0], at, number.end()
    if word := _WORD.match(text, at):
        return "word", word[0], at, word.end()
    raise _Malformed


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "it fits nothing too"
    return found.end()


def _members(text: str, start: int) -> Part:
    found: list[tuple[str, Part]] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}" or found:
        if text[at : at + 1] not in ('"', "'"):
            raise _Malformed
        name, at = _quoted(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _Malformed
        value = _parse(text, at + 1)
        found.append((name, value))
        at = _skip(text, value[3])
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return "object", found, start, _closed(text, at, "}")


def _items(text: str, start: int) -> Part:
    found: list[Part] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]" or found:
        found.append(_parse(text, at))
        at = _skip(text, found[-1][3])
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return "array", found, start, _closed(text, at, "]")


def _closed(text: str, at: int, bracket: str) -> int:
    if text[at : at + 1] != bracket:
        raise _Malformed
    return at + 1


def _quoted(text: str, start: int) -> tuple[str, int]:
    quote, at, found = text[start], start + 1, []
    while True:
        plain = _TEXT[quote].match(text, at)
        assert plain is not None, "it fits nothing too"
        found.append(plain[0])
        at = plain.end()
        letter = text[at : at + 1]
        if letter == quote:
            return _joined("".join(found)), at + 1
        if letter != "\\":
            raise _Malformed
        escape = text[at + 1 : at + 2]
        if escape == "u" and re.match(r"[0-9A-Fa-f]{4}", text[at + 2 : at + 6]):
            found.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
        elif escape in _ESCAPES and escape:
            found.append(_ESCAPES[escape])
            at += 2
        else:
            raise _Malformed


def _joined(text: str) -> str:
    """Halves of surrogate pairs as one letter; a half alone is a question mark, as Java writes it."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return re.sub("[\ud800-\udfff]", "?", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


class _Unfit(Exception):
    """A value does not fit the schema."""


def _fit(part: Part, schema: Any, text: str) -> Any:
    """A value for DuckDB's JSON; raises _Unfit where it is none of the schema's type."""
    kind, value, start, end = part
    if part[:2] == ("word", "null"):
        return None
    if isinstance(schema, dict):
        if kind != "object":
            raise _Unfit
        return _struct(value, schema, text)
    if isinstance(schema, list):
        if schema[0] == "map":
            if kind != "object":
                raise _Unfit
            return {name: _fit(inner, schema[1], text) for name, inner in value}
        if kind != "array":
            raise _Unfit
        return [_fit(inner, schema[1], text) for inner in value]
    if schema == "STRING":
        return value if kind == "text" else text[start:end]
    return _scalar(kind, value, schema)


def _struct(members: list[tuple[str, Part]], schema: dict[str, Any], text: str) -> dict[str, Any]:
    """All fields of a struct, NULL where one is missing or does not fit; of several of a name the last counts."""
    found: dict[str, Any] = dict.fromkeys(schema)
    for name, part in members:
        if name in schema:
            try:
                found[name] = _fit(part, schema[name], text)
            except _Unfit:
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
            return value
        if kind in ("text", "word") and value in _ODD:
            return _ODD[value]
    if schema.startswith("DECIMAL"):
        return _decimal(kind, value, schema)
    raise _Unfit


def _decimal(kind: str, value: str, schema: str) -> str | None:
    precision, scale = (int(digits) for digits in schema[8:-1].split(","))
    try:
        if kind not in ("whole", "number", "text"):
            raise _Unfit
        number = Decimal(value.replace(",", "") if kind == "text" else value)
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        raise _Unfit from None
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
        root = _parse(text, 0)
        if isinstance(schema, dict) and root[0] == "array":
            # An array stands for the first of its structs.
            root = root[1][0] if root[1] else root
        elif isinstance(schema, list) and schema[0] == "array" and root[0] == "object" and isinstance(schema[1], dict):
            root = ("array", [root], root[2], root[3])
        found = _fit(root, schema, text)
    except (_Malformed, _Unfit, RecursionError):
        found = nothing
    return None if found is None else json.dumps(found)


def _keys(text: str) -> list[str] | None:
    try:
        root = _parse(text, 0)
    except (_Malformed, RecursionError):
        return None
    return [name for name, _ in root[1]] if root[0] == "object" else None


KERNELS: Mapping[str, Kernel] = {
    "spark_from_json": each(_read, "VARCHAR", "VARCHAR", "VARCHAR"),
    "spark_json_keys": each(_keys, "VARCHAR", "VARCHAR[]"),
}
