"""Calls of every function in the tables, over columns with edge values."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rowkind.avro.schema import Record
from rowkind.service.plan.scalar.functions import FAMILIES, ScalarFunction
from tests.spark.given import GIVEN, JSON, STRUCTS, URLS

_INTS = [0, 1, -1, 2, 5, 7, 31, 33, 64, 100, -250, 2**31 - 1, -(2**31)]
_TEXTS = [
    "", " ", "a", "abc", " Abc dEf ", "a,b,,c", "é😀x", "ß", "Straße İ", "12", "-1.50", " 7 ", "1e3", "NaN", "x\ty\n",
    "2024-02-29", "2024-2-3", "2024-02-29 12:34:56.5", "2023-02-29", "t", "FALSE", "%a_b\\", '{"a": {"b": [1, "x"]}}',
    "[1, 2]", "YWJj", "0aF", "a%20b+c", "79927398713", "Robert", "1", "aaa",
    "ΑΣ ΑΣΑ.Σ", "1.", "\U0001d7d92", "ªⅷＡｂ１ǅ", "2024-02-29 24:00:00", "2024-02-29T12", "2024-02-29T12:00Z", "1\xa02",
]  # fmt: skip
_DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 2.675, 123456.789, 1e7, 1.5e-5, 1e20, -1e300,
            math.nan, math.inf, -math.inf]  # fmt: skip
_DAYS = [date(2024, 2, 29), date(2024, 1, 31), date(2023, 12, 31), date(1970, 1, 1), date(1969, 12, 31),
         date(1900, 3, 1), date(2024, 12, 30), date(2021, 1, 3), date(1582, 10, 4), date(1500, 2, 28),
         date(9900, 12, 31)]  # fmt: skip
_INSTANTS = [
    datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC),
    datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
    datetime(1960, 7, 4, 1, 2, 3, 1, tzinfo=UTC),
    datetime(2024, 6, 30, 0, 0, 0, 5000, tzinfo=UTC),
    datetime(2021, 1, 3, 15, 0, tzinfo=UTC),
    datetime(2023, 3, 31, 6, 7, 8, tzinfo=UTC),
    # Where clocks change for summer time, and where Julian dates end.
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    datetime(2024, 3, 31, 2, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, tzinfo=UTC),
    datetime(2024, 3, 10, 2, 30, tzinfo=UTC),
    datetime(1582, 10, 4, 12, 0, 1, tzinfo=UTC),
    datetime(9900, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
_TIMES = [instant.replace(tzinfo=None) for instant in _INSTANTS]
_NUMBERS_AS_TIMES = ["s", "m", "j", "d", "CAST(d AS DOUBLE)", "day", "nt", "b", "z"]
_COLUMNS: Mapping[str, tuple[str, list[Any]]] = {
    "i": ("INT", _INTS),
    "j": ("INT", [0, 1, 2, 3, -1, -2, 10, 16]),
    "k": ("INT", [0, 1, 2, 3, 5, -1]),
    "l": ("BIGINT", [*_INTS, 2**63 - 1, -(2**63), 10**12, -5]),
    "m": ("BIGINT", [0, 1, -1, 65, 233, 3, 10**6]),
    "d": ("DECIMAL(10,2)", [Decimal(n).scaleb(-2) for n in (0, 5, -5, 149, 150, -250, 12345, 9999999999)]),
    "e": ("DECIMAL(8,1)", [Decimal(n).scaleb(-1) for n in (0, 5, -5, 15, 25, 1234567)]),
    "w": ("DECIMAL(38,18)", [Decimal(n).scaleb(-18) for n in (0, 1, -1, 10**18, 3 * 10**18, 15 * 10**17, 10**37)]),
    "p": ("DECIMAL(2,2)", [Decimal(n).scaleb(-2) for n in (0, 5, -99, 50)]),
    "f": ("FLOAT", [0.0, -0.0, 1.5, -2.5, 0.1, 2.675, 1e10, math.nan, math.inf]),
    "x": ("DOUBLE", _DOUBLES),
    "y": ("DOUBLE", _DOUBLES),
    "s": ("STRING", _TEXTS),
    "t": ("STRING", ["", "a", "b", ",", " ", "ab", "é", "xyz", "Abc"]),
    "u": ("STRING", ["", "x", "ab", "😀", ","]),
    "zone": ("STRING", ["UTC", "Europe/Berlin", "America/New_York", "+02:00", "-05:30"]),
    "z": ("BINARY", [b"", b"a", b"\x00\xff", "é".encode(), b"abc"]),
    "b": ("BOOLEAN", [True, False]),
    "c": ("BOOLEAN", [True, False]),
    "day": ("DATE", _DAYS),
    "eve": ("DATE", _DAYS),
    "ts": ("TIMESTAMP", _INSTANTS),
    "tt": ("TIMESTAMP", _INSTANTS),
    "nt": ("TIMESTAMP_NTZ", _TIMES),
    "nn": ("TIMESTAMP_NTZ", _TIMES),
    "ai": ("ARRAY<INT>", [[], [1, 2, 3], [None, 2], [5]]),
    "at": ("ARRAY<STRING>", [[], ["a", None, "b"], ["é"], [None]]),
    "ax": ("ARRAY<DOUBLE>", [[], [1.5, math.nan], [-0.0, 2.5, None]]),
    "mp": ("MAP<STRING, INT>", [{}, {"a": 1, "b": None}, {"": 3}]),
    "aj": ("ARRAY<INT>", [[], [2, 2, None, 1, None], [3, -1], [2**31 - 1, 0]]),
    "bt": ("ARRAY<STRING>", [[], ["b", "a", "", None], ["é", "😀", "é"], ["c"]]),
    "ay": ("ARRAY<DOUBLE>", [[], [math.nan, 1.5, math.nan], [0.0, -0.0, None], [math.inf, -1.0]]),
    "aa": ("ARRAY<ARRAY<INT>>", [[], [[1], [], [2, None]], [[1], None], [[3], [3]]]),
    "st": ("STRUCT<a: INT, b: STRING, c: ARRAY<INT>>", STRUCTS),
    "su": (
        "ARRAY<STRUCT<k: STRING, v: INT>>",
        [[], [{"k": "a", "v": 1}, {"k": "b", "v": None}], [{"k": "x", "v": 2}, None]],
    ),
    "mq": ("MAP<STRING, INT>", [{}, {"x": 1, "y": None}, {"b": 7}]),
    "js": ("STRING", JSON),
    "url": ("STRING", URLS),
}
COLUMNS = Record.of({name: type_ for name, (type_, _) in _COLUMNS.items()})
ROWS = 48


_GIVEN: Mapping[str, list[str]] = GIVEN | {
    # No text of two billion characters, and no dates outside Python's range.
    "REPEAT": ["s, k"], "SPACE": ["k"], "LPAD": ["s, j", "s, j, t", "s, k, u"], "RPAD": ["s, j", "s, j, t", "s, k, u"],
    "DATE_ADD": ["day, j", "ts, k", "nt, j"], "DATE_SUB": ["day, j", "ts, k", "nt, j"],
    "ADD_MONTHS": ["day, j", "ts, k"], "DATE_FROM_UNIX_DATE": ["j"],
    "MAKE_DATE": ["2000 + j, k, j", "2024, 2, 10 * k"],
    "TIMESTAMP_MILLIS": ["m", "k"], "TIMESTAMP_MICROS": ["m", "i"],
    "TIMESTAMP_SECONDS": ["m", "k", "d", "CAST(d AS DOUBLE)"],
    "MAKE_TIMESTAMP": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 60", "2024, k, 3, 4, 5, 1, zone"],
    "MAKE_TIMESTAMP_LTZ": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 1, zone"],
    "MAKE_TIMESTAMP_NTZ": ["2000 + j, k, j, j, k, e", "2024, k, 3, 4, 5, 60"],
    "FROM_UTC_TIMESTAMP": ["ts, zone", "nt, zone", "day, 'Asia/Tokyo'"],
    "TO_UTC_TIMESTAMP": ["ts, zone", "nt, zone", "day, 'Asia/Tokyo'"],
    "CONVERT_TIMEZONE": ["zone, nt", "zone, 'Asia/Tokyo', nt", "'Asia/Tokyo', zone, nt"],
    "FROM_UNIXTIME": ["m", "m, 'yyyy/MM/dd HH:mm'"],
    "ARRAY_CONTAINS": ["ai, i", "ax, x", "at, s", "ai, j"], "ARRAY_POSITION": ["ai, i", "ax, x", "at, s", "ai, j"],
    "ARRAY_JOIN": ["at, t", "at, t, u"], "ELEMENT_AT": ["ai, j", "ax, k", "mp, t"], "GET": ["ai, j", "at, k"],
    "TRY_ELEMENT_AT": ["ai, j", "at, k", "mp, t"],
    "TIMESTAMP": _NUMBERS_AS_TIMES, "TRY_TO_TIMESTAMP": _NUMBERS_AS_TIMES, "OVERLAY": ["s, t, j", "s, t, j, k"],
    "CONV": ["s, 10, 16", "s, 16, 10", "s, 10, -2", "s, j, k"],
}  # fmt: skip
"""Arguments for functions whose parameter kinds alone do not give useful calls."""


def values(seed: int) -> dict[str, list[Any]]:
    """Return rows in which each value of each column occurs, NULL included, in random combinations."""
    rng = random.Random(seed)
    found = {}
    for name, (_, edges) in _COLUMNS.items():
        column = [*edges, None]
        column += [rng.choice(edges) for _ in range(ROWS - len(column))]
        rng.shuffle(column)
        found[name] = column
    return found


_ARGUMENTS: Mapping[str, list[list[str]]] = {
    "text": [["s", "t", "u"]],
    "int": [["j", "k", "i"], ["i", "j", "k"]],
    "bigint": [["m"], ["l"], ["i"]],
    "integer": [["i", "j"], ["l", "m"]],
    "decimal": [["d"]],
    "double": [["x", "y", "f", "d"], ["i", "d", "x", "y"]],
    "float": [["x", "y"], ["f"]],
    "number": [["x", "y"], ["i", "j"], ["d", "e"], ["l", "d"], ["w", "d"], ["f", "i"], ["p", "k"]],
    "boolean": [["b", "c"]],
    "binary": [["z"]],
    "date": [["day", "eve"], ["ts", "tt"], ["nt", "day"]],
    "timestamp": [["ts", "tt"], ["nt", "ts"], ["day", "nt"]],
    "local": [["nt"]],
    "instant": [["ts"], ["nt"]],
    "day": [["day"]],
    "moment": [["ts", "tt"], ["day", "eve"], ["nt", "nn"]],
    "any": [["i", "j", "k", "i", "j"], ["s", "t", "u", "s"], ["d", "e", "i", "d"], ["ts", "tt", "day"],
            ["x", "y", "x", "y"], ["b", "c", "b"]],
    "any array": [["ai"], ["ax"]],
    "any map": [["mp"]],
    "array": [["ai", "aj"], ["ax", "ay"], ["at", "bt"], ["aa"], ["su"], ["ay"], ["aj"]],
    "map": [["mp"], ["mq"]],
}  # fmt: skip
_UNITS = ["MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
_FORMATS = [["'yyyy-MM-dd'"], ["'dd.MM.yyyy'"], ["'yyyy-M-d'"]]
_TIME_FORMATS = [["'yyyy-MM-dd HH:mm:ss.SSS'"], ["'yyyy-MM-dd'"]]
_WRITTEN: Mapping[str, list[list[str]]] = {
    "ROUND": [["0"], ["1"], ["-1"], ["3"]],
    "BROUND": [["0"], ["1"], ["-1"]],
    "FORMAT_NUMBER": [["0"], ["2"], ["-1"]],
    "SHA2": [["0"], ["224"], ["256"], ["384"], ["512"], ["5"]],
    "ENCODE": [["'UTF-8'"]],
    "DECODE": [["'UTF-8'"]],
    "EXTRACT": [[f"'{field}'"] for field in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "DOY", "HOUR", "MINUTE",
                                             "SECOND", "YEAROFWEEK", "DAYOFWEEK_ISO")],
    "NEXT_DAY": [["'MO'"], ["'Sun'"], ["'FRIDAY'"]],
    "DATE_TRUNC": [[f"'{unit}'"] for unit in [*_UNITS, "MILLISECOND", "MINUTE", "mon", "DD"]],
    "TRUNC": [["'YEAR'"], ["'QUARTER'"], ["'MM'"], ["'WEEK'"]],
    "TIMESTAMPADD": [[unit] for unit in _UNITS],
    "TIMESTAMPDIFF": [[unit] for unit in _UNITS],
    "DATE_FORMAT": [["'yyyy-MM-dd HH:mm:ss.SSSSSS'"], ["'E EEEE d MMM MMMM yy'"], ["'hh:mm a D'"],
                    ["\"dd'T'H:m:s %\""]],
    "FROM_UNIXTIME": [["'yyyy/MM/dd HH:mm'"]],
    "UNIX_TIMESTAMP": [["'yyyy-MM-dd'"], ["'yyyy-MM-dd HH:mm:ss.SSS'"]],
    "TO_DATE": _FORMATS, "TRY_TO_DATE": _FORMATS,
    "TO_TIMESTAMP": _TIME_FORMATS, "TO_TIMESTAMP_NTZ": _TIME_FORMATS, "TRY_TO_TIMESTAMP": _TIME_FORMATS,
    "REGEXP_LIKE": [[r"'^[a-c]+'"], [r"'(?i)ABC|\\d$'"], [r"'\\s.'"], [r"'[^\\w,]'"]],
    "REGEXP_REPLACE": [[r"'([a-z])(\\d?)'", "'<$2$1>'"], [r"'\\s+'", "''"], [r"'[,.]'", r"'\\\\'"]],
    "REGEXP_EXTRACT": [[r"'(a)|(b)'", "2"], [r"'([a-z]+)'", "1"], [r"'(\\d)+'", "0"]],
    "REGEXP_SUBSTR": [[r"'\\d+'"], ["'b*'"]],
    "REGEXP_COUNT": [["'a'"], [r"'\\w+'"]],
}  # fmt: skip


def functions() -> Iterator[ScalarFunction]:
    """Yield every function of the tables."""
    for family in FAMILIES.values():
        yield from family


def calls(function: ScalarFunction) -> Iterator[str]:
    """Yield calls of a function under each of its names, with columns of every kind that it accepts."""
    first, *others = function.names.split()
    kinds = function.kinds
    if kinds and kinds[-1].endswith("..."):
        kinds = [*kinds[:-1], *[kinds[-1].removesuffix("...")] * 2]
    if first in _GIVEN:
        given = [each for each in _GIVEN[first] if function.takes_count(_count(each))]
        yield from (f"{name}({each})" for name in (first, *others) for each in given)
        return
    written = _WRITTEN.get(first, [[]])
    choices = {kind: _ARGUMENTS.get(kind, [[]]) for kind in kinds}
    for turn in range(max([len(each) for each in choices.values()] + [len(written)], default=1)):
        found = list(_call(kinds, choices, iter(written[turn % len(written)]), turn))
        yield f"{first}({', '.join(found)})"
        if turn == 0:
            for name in others:
                yield f"{name}({', '.join(found)})"


def _count(arguments: str) -> int:
    """Return the number of arguments; commas in quotes and parentheses do not count."""
    outside = re.sub(r"'(?:[^'\\]|\\.)*'", "", arguments)
    while (inner := re.sub(r"\([^()]*\)", "", outside)) != outside:
        outside = inner
    return outside.count(",") + 1


def _call(kinds: list[str], choices: Mapping[str, list[list[str]]], written: Iterator[str], turn: int) -> Iterator[str]:
    used: dict[str, itertools.count[int]] = {}
    for kind in kinds:
        if kind == "unit" or kind.startswith("'"):
            yield next(written)
            continue
        columns = choices[kind][turn % len(choices[kind])]
        place = next(used.setdefault(kind, itertools.count()))
        yield columns[place % len(columns)]


_TARGETS = ["BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,18)", "DECIMAL(5,3)", "STRING",
            "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]  # fmt: skip


_AS_TIMES = {"i": "j", "l": "m", "w": "d", "f": "CAST(d AS FLOAT)", "x": "CAST(d AS DOUBLE)"}
"""For casts to timestamps: expressions whose numbers are times within Python's range."""


def casts() -> Iterator[str]:
    """Yield casts of every type to every other type."""
    for column in ("i", "l", "d", "w", "p", "f", "x", "s", "z", "b", "day", "ts", "nt"):
        for target in _TARGETS:
            value = _AS_TIMES.get(column, column) if "STAMP" in target else column
            yield from (f"{word}({value} AS {target})" for word in ("CAST", "TRY_CAST"))


_LEFT = ("i", "l", "d", "w", "x", "p")
_RIGHT = ("j", "e", "w", "y", "f", "3", "CAST(l AS DECIMAL(20,0))")
_SIGNS = ("+", "-", "*", "/", "%", "=", "<", "<=>")
ARITHMETIC = [f"{left} {sign} {right}" for left, right, sign in itertools.product(_LEFT, _RIGHT, _SIGNS)]
"""Arithmetic and comparisons of numbers of every type with every other type."""
