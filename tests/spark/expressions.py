"""Random scalar expressions of Spark SQL over the columns of `COLUMNS`, and random values for these."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rowkind.avro.schema import Record

COLUMNS = Record.of(
    {
        "i": "INT",
        "j": "INT",
        "l": "BIGINT",
        "d": "DECIMAL(10,2)",
        "e": "DECIMAL(8,1)",
        "w": "DECIMAL(38,12)",
        "f": "FLOAT",
        "x": "DOUBLE",
        "y": "DOUBLE",
        "s": "STRING",
        "t": "STRING",
        "b": "BOOLEAN",
        "c": "BOOLEAN",
        "day": "DATE",
        "ts": "TIMESTAMP",
        "nt": "TIMESTAMP_NTZ",
        "ai": "ARRAY<INT>",
        "ax": "ARRAY<DOUBLE>",
        "at": "ARRAY<STRING>",
        "st": "STRUCT<a: INT, t: STRING, l: ARRAY<INT>>",
        "su": "ARRAY<STRUCT<k: STRING, v: INT>>",
        "mp": "MAP<STRING, INT>",
    }
)
_CHOICES: Mapping[str, Callable[[random.Random], Any]] = {
    "i": lambda rng: rng.choice([0, 1, -1, 7, 100, -250]),
    "j": lambda rng: rng.choice([0, 1, 2, 3]),
    "l": lambda rng: rng.choice([0, 1, -5, 10**12]),
    "d": lambda rng: Decimal(rng.choice([0, 5, -5, 149, 150, -150, 12345, 99999])).scaleb(-2),
    "e": lambda rng: Decimal(rng.choice([0, 5, -5, 15, 123])).scaleb(-1),
    "w": lambda rng: Decimal(rng.choice([0, 1, -7, 10**12, 25 * 10**11, 10**20])).scaleb(-12),
    "f": lambda rng: rng.choice([0.0, 1.5, -2.5, 0.1]),
    "x": lambda rng: rng.choice([0.0, -0.0, 1.5, -1.5, 2.5, math.nan, math.inf, 1e20, 0.1]),
    "y": lambda rng: rng.choice([0.0, 1.5, 3.0]),
    "s": lambda rng: rng.choice(["", " a ", "abc", "a%b", "A_b", "é😀x", "\tq"]),
    "t": lambda rng: rng.choice(["a", "abc", "%", ""]),
    "b": lambda rng: rng.random() < 0.5,
    "c": lambda rng: rng.random() < 0.5,
    "day": lambda rng: date(2024, rng.randint(1, 3), rng.randint(1, 28)),
    "ts": lambda rng: _time(rng).replace(tzinfo=UTC),
    "nt": lambda rng: _time(rng),  # noqa: PLW0108 -- `_time` is defined below
    "ai": lambda rng: _some(rng, "j"),
    "ax": lambda rng: _some(rng, "x"),
    "at": lambda rng: _some(rng, "s"),
    "st": lambda rng: {"a": random_value(rng, "j"), "t": random_value(rng, "t"), "l": random_value(rng, "ai")},
    "su": lambda rng: [
        rng.choice([None, {"k": random_value(rng, "t"), "v": random_value(rng, "i")}]) for _ in range(rng.randrange(3))
    ],
    "mp": lambda rng: {key: random_value(rng, "i") for key in rng.choice([(), ("a",), ("a", "b"), ("", "abc")])},
}


def _some(rng: random.Random, column: str) -> list[Any]:
    return [random_value(rng, column) for _ in range(rng.randrange(4))]


def _time(rng: random.Random) -> datetime:
    fraction = rng.choice([0, 500_000, 123_456])
    return datetime(2024, 1, rng.randint(1, 5), rng.choice([0, 12]), 0, rng.choice([0, 30]), fraction)  # noqa: DTZ001 -- a local time


def random_value(rng: random.Random, column: str) -> Any:
    """Return a value of a column, sometimes NULL."""
    return None if rng.random() < 0.15 else _CHOICES[column](rng)


def random_expression(rng: random.Random, depth: int) -> str:
    """Return a random expression: a number, a text, a condition, a date or timestamp, or a nested value."""
    return rng.choice([_number, _text, _condition, _moment, _array, _nested])(rng, depth)


_NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(12,1)", "DECIMAL(20,4)", "FLOAT", "DECIMAL(38,18)")
_READ = ("INT", "BIGINT", "DOUBLE", "DECIMAL(6,2)")
_PARTS = ("YEAR", "MONTH", "DAYOFWEEK", "DAYOFYEAR", "WEEKOFYEAR", "QUARTER", "HOUR", "SECOND")
_OF_TWO = ("TRY_DIVIDE", "TRY_MOD", "TRY_ADD", "TRY_MULTIPLY", "GREATEST", "LEAST", "NVL")
_OF_TEXTS = ("STARTSWITH", "ENDSWITH", "CONTAINS", "EQUAL_NULL")


def _element(rng: random.Random, depth: int, name: str) -> str:
    """Return a number computed from an element of an array of numbers."""
    number = _number(rng, depth - 1)
    return rng.choice([name, f"{name} + 1", f"COALESCE({name}, {number})", f"IF({name} > 1, {name}, NULL)"])


def _array(rng: random.Random, depth: int) -> str:
    """Return an array of integers."""
    if depth <= 0 or rng.random() < 0.25:
        return rng.choice(["ai", "st.l", "ARRAY(i, j)", "ARRAY(1, NULL, j)", "CAST(NULL AS ARRAY<INT>)", "su.v"])
    a, b = _array(rng, depth - 1), _array(rng, depth - 1)
    name = rng.choice(["x", "e", "each_1", "i"])
    return rng.choice(
        [
            lambda: f"TRANSFORM({a}, {name} -> {_element(rng, depth, name).replace('CAST(', 'INT(')})",
            lambda: f"TRANSFORM({a}, ({name}, n) -> {name} * 2 - n)",
            lambda: f"FILTER({a}, {name} -> {rng.choice([f'{name} > 0', f'{name} IS NULL', f'{name} = j', 'c'])})",
            lambda: f"{rng.choice(['ARRAY_UNION', 'ARRAY_EXCEPT', 'ARRAY_INTERSECT', 'CONCAT'])}({a}, {b})",
            lambda: f"{rng.choice(['ARRAY_DISTINCT', 'REVERSE', 'SORT_ARRAY', 'ARRAY_SORT', 'ARRAY_COMPACT'])}({a})",
            lambda: f"ZIP_WITH({a}, {b}, (p, q) -> COALESCE(p, 0) - q)",
            lambda: (
                f"{rng.choice(['ARRAY_APPEND', 'ARRAY_PREPEND', 'ARRAY_REMOVE'])}({a}, {rng.choice(['i', 'j', '2'])})"
            ),
            lambda: f"SLICE({a}, {rng.choice(['1', '2', '-1', 'j'])}, {rng.choice(['0', '1', 'j'])})",
            lambda: f"FLATTEN(ARRAY({a}, {b}))",
            lambda: f"IF({_condition(rng, depth - 1)}, {a}, {b})",
            lambda: f"TRANSFORM({a}, {name} -> SIZE(FILTER({b}, o -> o = {name} AND j > 0)))",
            lambda: f"MAP_VALUES(TRANSFORM_VALUES(mp, (k, v) -> COALESCE(v, LENGTH(k), i) + {rng.choice(['1', 'j'])}))",
        ]
    )()


def _struct(rng: random.Random, depth: int, array: str) -> str:
    # After STRUCT( Spark's parser takes >> for the ends of two types.
    number, text = (part(rng, depth - 1).replace(">>", "<<") for part in (_number, _text))
    return f"STRUCT({number} AS n, {array} AS a, {text} AS t, ts, mp, st AS s)"


def _nested(rng: random.Random, depth: int) -> str:
    """Return an expression over arrays, maps and structs."""
    a, name = _array(rng, depth - 1), rng.choice(["x", "e"])
    return rng.choice(
        [
            lambda: f"AGGREGATE({a}, 0, (m, {name}) -> m + COALESCE({name}, j), m -> m * 2)",
            lambda: f"{rng.choice(['EXISTS', 'FORALL'])}({a}, {name} -> {name} {rng.choice('<=>')} j)",
            lambda: f"TO_JSON({_struct(rng, depth, a)})",
            lambda: f"CAST({rng.choice([a, 'st', 'su', 'mp', 'ax', 'at'])} AS STRING)",
            lambda: f"ARRAY_JOIN({rng.choice([a, 'at'])}, {_text(rng, 0)}{rng.choice(['', ', s'])})",
            lambda: f"NAMED_STRUCT('a', {a}, 'm', {_moment(rng, depth - 1)}, 's', st).a",
            lambda: f"TRANSFORM(su, {name} -> NAMED_STRUCT('k', UPPER({name}.k), 'v', {name}.v + j))",
            lambda: f"MAP_FILTER(mp, (k, v) -> k {rng.choice(['=', '<>'])} t OR v > j)",
            lambda: f"{rng.choice(['ARRAY_MIN', 'ARRAY_MAX', 'SIZE'])}({rng.choice([a, 'ax'])})",
            lambda: f"{rng.choice(['ARRAY_CONTAINS', 'ARRAY_POSITION'])}({a}, {rng.choice(['i', 'j'])})",
        ]
    )()


def _number(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.4:
        literals = ["1", "2.5", "-3", "0.10", "1e1", "CAST(NULL AS INT)"]
        return rng.choice(["i", "j", "l", "d", "e", "w", "f", "x", "y", *literals])
    a, b = _number(rng, depth - 1), _number(rng, depth - 1)
    return rng.choice(
        [
            lambda: f"({a} {rng.choice('+-*')} {b})",
            lambda: f"({a} {rng.choice('+-*')} {b})",
            lambda: f"COALESCE({a}, {b})",
            lambda: f"CASE WHEN {_condition(rng, depth - 1)} THEN {a} ELSE {b} END",
            lambda: f"{rng.choice(['CAST', 'TRY_CAST'])}({a} AS {rng.choice(_NUMBERS)})",
            lambda: f"{rng.choice(['LENGTH', 'ASCII', 'OCTET_LENGTH'])}({_text(rng, depth - 1)})",
            lambda: f"NULLIF({a}, {b})",
            lambda: f"({a} {rng.choice(['/', '%', 'DIV'])} {b})",
            lambda: f"{rng.choice(_OF_TWO)}({a}, {b})",
            lambda: f"{rng.choice(['ABS', 'CEIL', 'FLOOR', 'ROUND', 'BROUND', 'SIGN', 'NEGATIVE'])}({a})",
            lambda: f"ROUND({a}, {rng.choice([-1, 0, 1, 3])})",
            lambda: f"{rng.choice(['CAST', 'TRY_CAST'])}({_text(rng, depth - 1)} AS {rng.choice(_READ)})",
            lambda: f"(i {rng.choice(['&', '|', '^', '<<', '>>'])} j)",
            lambda: rng.choice(
                [f"{rng.choice(_PARTS)}({_moment(rng, depth - 1)})", f"DATEDIFF({_day(rng, depth - 1)}, day)"]
            ),
        ]
    )()


def _day(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.4:
        return rng.choice(["day", "CAST(ts AS DATE)", "DATE '2024-02-29'", "LAST_DAY(day)"])
    return rng.choice(
        [
            f"DATE_ADD({_day(rng, depth - 1)}, j)",
            f"ADD_MONTHS({_day(rng, depth - 1)}, j)",
            f"({_day(rng, depth - 1)} - INTERVAL {rng.randint(1, 40)} {rng.choice(['DAY', 'MONTH', 'YEAR'])})",
            f"TRUNC({_day(rng, depth - 1)}, '{rng.choice(['MM', 'YEAR', 'WEEK', 'QUARTER'])}')",
            f"({_day(rng, depth - 1)} + 3)",
        ]
    )


def _moment(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice(["ts", "nt", "day", "TIMESTAMP '2024-02-29 23:59:59.5'"])
    inner = _moment(rng, depth - 1)
    unit = rng.choice(["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"])
    return rng.choice(
        [
            f"DATE_TRUNC('{unit}', {inner})",
            f"TIMESTAMPADD({unit}, j, {inner})",
            f"({rng.choice(['ts', 'nt'])} + INTERVAL '1 02:03:04.5' DAY TO SECOND)",
            f"({inner} - INTERVAL {rng.randint(1, 40)} {unit})",
            _day(rng, depth - 1),
        ]
    )


def _text(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.4:
        return rng.choice(["s", "t", "'a'", "'%x'", "''", r"'it\'s'", "' 12 '", "'-1.5'"])
    a, b = _text(rng, depth - 1), _text(rng, depth - 1)
    return rng.choice(
        [
            lambda: f"{rng.choice(['UPPER', 'LOWER', 'TRIM', 'REVERSE', 'INITCAP', 'MD5', 'HEX'])}({a})",
            lambda: f"SUBSTRING({a}, {rng.randint(-3, 3)}{rng.choice(['', ', 2', ', 0'])})",
            lambda: f"({a} || {b})",
            lambda: f"CONCAT({a}, {rng.choice(['i', 'd', 'b', 'day', 'ts', 'nt', 'l', 'x', 'w', b])})",
            lambda: f"CAST({rng.choice(['i', 'l', 'd', 'e', 'w', 'x', 'b', 'day', 'ts', 'nt'])} AS STRING)",
            lambda: f"REPLACE({a}, {b}, 'z')",
            lambda: f"{rng.choice(['LPAD', 'RPAD'])}({a}, j, {b})",
            lambda: f"DATE_FORMAT({_moment(rng, depth - 1)}, 'yyyy-MM-dd EEE HH:mm')",
            lambda: rf"REGEXP_REPLACE({a}, '[a-c]+', '<$0>')" if rng.random() < 0.5 else f"CONCAT_WS({b}, {a}, i)",
            lambda: f"IF({_condition(rng, depth - 1)}, {a}, {b})",
        ]
    )()


def _when(rng: random.Random) -> str:
    literals = ["DATE '2024-01-15'", "TIMESTAMP '2024-01-02 12:00:00'", "'2024-01-03'"]
    return rng.choice(["day", "ts", "nt", "CAST(ts AS DATE)", "CAST(day AS TIMESTAMP)", _moment(rng, 1), *literals])


def _pattern(rng: random.Random) -> str:
    return rng.choice(["'a%'", "'_B%'", "'%'", "'a'", _text(rng, 0), f"CONCAT('%', {_text(rng, 0)}, '_')"])


def _condition(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.2:
        return rng.choice(["b", "c", "TRUE", "FALSE", "(b IS NULL)"])
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    not_ = rng.choice(["", "NOT "])
    return rng.choice(
        [
            lambda: f"({_condition(rng, depth - 1)} {rng.choice(['AND', 'OR'])} {_condition(rng, depth - 1)})",
            lambda: f"(NOT {_condition(rng, depth - 1)})",
            lambda: f"({_number(rng, depth - 1)} {operator} {_number(rng, depth - 1)})",
            lambda: f"({_text(rng, depth - 1)} {operator} {_text(rng, depth - 1)})",
            lambda: f"({_when(rng)} {operator} {_when(rng)})",
            lambda: f"({_number(rng, depth - 1)} {not_}IN ({_number(rng, 0)}, {_number(rng, 0)}))",
            lambda: f"({_number(rng, depth - 1)} {not_}BETWEEN {_number(rng, 0)} AND {_number(rng, 0)})",
            lambda: f"({_text(rng, depth - 1)} {not_}{rng.choice(['LIKE', 'ILIKE'])} {_pattern(rng)})",
            lambda: rf"({_text(rng, depth - 1)} {not_}RLIKE {rng.choice(['^a', '[b-z]$', '.b?', '(x|a)+'])!r})",
            lambda: f"{rng.choice(_OF_TEXTS)}({_text(rng, depth - 1)}, {_text(rng, 0)})",
            lambda: f"({_condition(rng, depth - 1)} IS {not_}{rng.choice(['TRUE', 'FALSE', 'NULL'])})",
        ]
    )()
