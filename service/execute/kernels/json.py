"""JSON kernels, which parse text like Spark's `from_json`, including its rules for values that do not fit the schema.

The parser accepts the same input as Jackson does in Spark, including text in single quotes. Like `from_json`, it can
accept NaN and infinity. Like `get_json_object` and related functions, it can accept control characters inside text. It
parses one value at a time, because no library behaves in the same way.
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
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WIDE = Context(prec=400)


class _Number(str):
    """A number with a decimal point or an exponent, as written in the JSON text."""

    __slots__ = ()


class _JsonWord(str):
    """NaN or infinity, as written in the JSON text."""

    __slots__ = ()


Parsed = tuple[tuple[str, Any], ...] | list[Any] | str | int | bool | None
"""A parsed JSON value.

An object is represented as a tuple of its members. A number with a decimal point or an exponent is a `_Number`, and any
other number is an int. NaN and infinity are `_JsonWord`s.
"""


class _MalformedError(Exception):
    """The text is not JSON."""


def _parsed(text: str, schema: bool) -> Parsed:
    """Parse the first value in a text. Raises _MalformedError, or RecursionError if the value is nested too deeply."""
    start = _skip(text, 0)
    # Python's decoder agrees with Jackson on where objects and arrays end. Surrogate pairs are left to `_joined`.
    if text[start : start + 1] in ("{", "[") and "\\ud" not in text and "\\uD" not in text:
        try:
            found: Parsed = (_DECODER if schema else _PLAIN_DECODER).raw_decode(text, start)[0]
        except ValueError:
            # Either Jackson accepts this text although Python's decoder does not, or the text is not JSON.
            pass
        else:
            return found
    return _parse(text, start, schema)[0]


def _no_word(word: str) -> Parsed:
    raise ValueError(word)


_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_float=_Number, parse_constant=_JsonWord)
_PLAIN_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_float=_Number, parse_constant=_no_word, strict=False)
_WORDS = {"true": True, "false": False, "null": None}


def _parse(text: str, at: int, schema: bool) -> tuple[Parsed, int]:
    """Parse the value at position `at`, after any spaces. Return the value and the position at which it ends."""
    at = _skip(text, at)
    letter = text[at : at + 1]
    if letter == "{":
        return _members(text, at, schema)
    if letter == "[":
        return _items(text, at, schema)
    if letter in ('"', "'"):
        return _quoted(text, at, schema)
    if number := _NUMBER.match(text, at):
        return _Number(number[0]) if number[1] or number[2] else _whole(number[0]), number.end()
    if word := (_WORD if schema else _PLAIN_WORD).match(text, at):
        return _WORDS[word[0]] if word[0] in _WORDS else _JsonWord(word[0]), word.end()
    raise _MalformedError


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        # The number has thousands of digits. Jackson reads at most a thousand.
        raise _MalformedError from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "the pattern also matches an empty text"
    return found.end()


def _members(text: str, start: int, schema: bool) -> tuple[Parsed, int]:
    found: list[tuple[str, Parsed]] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}" or found:
        if text[at : at + 1] not in ('"', "'"):
            raise _MalformedError
        name, at = _quoted(text, at, schema)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _MalformedError
        value, end = _parse(text, at + 1, schema)
        found.append((name, value))
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return tuple(found), _closed(text, at, "}")


def _items(text: str, start: int, schema: bool) -> tuple[Parsed, int]:
    found: list[Parsed] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]" or found:
        value, end = _parse(text, at, schema)
        found.append(value)
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    return found, _closed(text, at, "]")


def _closed(text: str, at: int, bracket: str) -> int:
    if text[at : at + 1] != bracket:
        raise _MalformedError
    return at + 1


def _quoted(text: str, start: int, schema: bool) -> tuple[str, int]:
    quote, at, found = text[start], start + 1, []
    while True:
        plain = (_TEXT if schema else _ANY_TEXT)[quote].match(text, at)
        assert plain is not None, "the pattern also matches an empty text"
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
    """Join surrogate pairs into one character. A lone half becomes a question mark, as in Java."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return re.sub("[\ud800-\udfff]", "?", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


class _UnfitError(Exception):
    """A value does not fit the schema."""


def _fit(part: Parsed, schema: Any) -> Any:
    """Convert a value for DuckDB's JSON. Raises _UnfitError if the value does not have the schema's type."""
    if part is None:
        return None
    if isinstance(schema, dict):
        if not isinstance(part, tuple):
            raise _UnfitError
        return _struct(part, schema)
    if isinstance(schema, list):
        if not isinstance(part, tuple if schema[0] == "map" else list):
            raise _UnfitError
        if isinstance(part, tuple):
            return {name: _fit(inner, schema[1]) for name, inner in part}
        return [_fit(inner, schema[1]) for inner in part]
    if schema == "STRING":
        return part if type(part) is str else _compact(part)
    return _scalar(part, schema)


def _struct(members: tuple[tuple[str, Parsed], ...], schema: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of a struct. Missing and unfit fields are NULL. If names are equal, the last one counts."""
    found: dict[str, Any] = dict.fromkeys(schema)
    for name, part in members:
        if name in schema:
            try:
                found[name] = _fit(part, schema[name])
            except _UnfitError:
                found[name] = None
    return found


def _scalar(value: Parsed, schema: str) -> Any:
    if schema == "BOOLEAN" and isinstance(value, bool):
        return value
    if schema in ("INT", "BIGINT") and type(value) is int:
        bits = 31 if schema == "INT" else 63
        if -(2**bits) <= value < 2**bits:
            return value
    if schema in ("FLOAT", "DOUBLE"):
        if type(value) is int or isinstance(value, _Number):
            return str(value)
        if isinstance(value, str) and value in _ODD:
            return _ODD[value]
    if schema.startswith("DECIMAL"):
        return _decimal(value, schema)
    raise _UnfitError


def _decimal(value: Parsed, schema: str) -> str | None:
    precision, scale = (int(digits) for digits in schema[8:-1].split(","))
    try:
        if isinstance(value, bool | _JsonWord) or not isinstance(value, int | str):
            raise _UnfitError
        if type(value) is str and not _DECIMAL.fullmatch(value := value.replace(",", "")):
            raise _UnfitError
        number = Decimal(value)
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        raise _UnfitError from None
    return format(rounded, "f") if abs(rounded) < Decimal(10) ** (precision - scale) else None


@lru_cache(maxsize=64)
def _schema(text: str) -> Any:
    return json.loads(text)


def _read(text: str, schema_text: str) -> str | None:
    """Convert text to JSON that fits the schema exactly. If the text is not JSON, all fields of a struct are NULL."""
    schema = _schema(schema_text)
    nothing = dict.fromkeys(schema) if isinstance(schema, dict) else None
    found: Any = nothing
    try:
        if _skip(text, 0) == len(text):
            return None
        root = _parsed(text, schema=True)
        if (
            isinstance(schema, list)
            and schema[0] == "array"
            and isinstance(root, tuple)
            and isinstance(schema[1], dict)
        ):
            root = [root]
        found = _fit(root, schema)
        found = nothing if found is None else found
    except (_MalformedError, _UnfitError, RecursionError):
        found = nothing
    return None if found is None else json.dumps(found)


def _root(text: str) -> Parsed:
    """Parse the first value in a text. Return None if the text is not JSON."""
    try:
        return _parsed(text, schema=False)
    except (_MalformedError, RecursionError):
        return None


def _keys(text: str) -> list[str] | None:
    root = _root(text)
    return [name for name, _ in root] if isinstance(root, tuple) else None


def _length(text: str) -> int | None:
    root = _root(text)
    return len(root) if isinstance(root, list) else None


def _found(text: str, path: str) -> str | None:
    """Return the value at a path of names and numbers, as text.

    If several members have the same name, the first member that has a value at the rest of the path counts.
    """
    steps = _schema(path)
    try:
        part = _at(_parsed(text, schema=False), steps)
    except (_MalformedError, RecursionError):
        return None
    if part is None and steps:
        return None
    return part if type(part) is str else _compact(part)


def _at(part: Parsed, steps: list[str | int]) -> Parsed:
    """Return the value at a path, or None if there is no value or the value is null."""
    for step in steps[:1]:
        if isinstance(step, int):
            inner = part[step : step + 1] if isinstance(part, list) else []
        else:
            inner = [value for name, value in part if name == step] if isinstance(part, tuple) else []
        known = (_at(value, steps[1:]) for value in inner)
        return next((found for found in known if found is not None), None)
    return part


def _compact(part: Parsed) -> str:
    match part:
        case tuple():
            return f"{{{','.join(f'{_escaped(name)}:{_compact(inner)}' for name, inner in part)}}}"
        case list():
            return f"[{','.join(map(_compact, part))}]"
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[part]
        case _JsonWord():
            return f'"{_ODD[part]}"'
        case _Number():
            value = float(part)
            odd = '"Infinity"' if value > 0 else '"-Infinity"'
            return double_text(value) if math.isfinite(value) else odd
        case str():
            return _escaped(part)
    return str(part)


def _escaped(text: str) -> str:
    """Escape text for JSON. Like Jackson when it copies JSON, write characters beyond 16 bits as surrogate pairs."""
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
