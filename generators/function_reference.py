"""Generate docs/sql-reference.md, the reference of expressions and functions, from the function tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from generators.function_coverage import coverage
from rowkind.avro.schema import Type
from rowkind.service.plan.scalar.functions import FAMILIES, FUNCTIONS, REFUSED
from rowkind.service.plan.scalar.functions.function import ScalarFunction
from rowkind.service.plan.sql.aggregate_table import REFUSED_AGGREGATES, TABLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sql-reference.md"

_HEAD = """# Expressions and functions

This page is generated: `python -m generators`. Every function here means what it
means in Spark SQL with ANSI mode on and the session's time zone UTC; Spark itself is asked in the tests. What Flink
calls otherwise or computes otherwise is said in the remarks; where both differ, Spark's meaning counts.

What fails on a row (an overflow, a division by zero, a CAST of text that is none of the type) stops the query with the
expression and the value: leaving out the row would give a wrong result. `TRY_CAST`, `TRY_DIVIDE` and their kin give
NULL instead. Behind AND, OR, CASE, IF and COALESCE nothing is evaluated that does not count any more, nor is the
argument of an aggregate where its FILTER is not true. A condition of WHERE, ON or HAVING is evaluated for the rows that
reach it, behind those written before it. Where `explain` shows POSSIBLE(…) further down, that takes out rows of which
the condition is not true, and leaves those on which it fails to the condition itself. An equality of ON that may fail,
`a = 10 / b`, is a key of the join if it comes first; behind conditions on both tables it is evaluated on pairs.

## Types

BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s) of up to 38 digits, STRING, BINARY, DATE, TIMESTAMP (an instant),
TIMESTAMP_NTZ; TIME can be compared. Fields of a STRUCT are read by `column.field`, elements of an ARRAY by
`column[0]`, entries of a MAP by `column['key']`; `column.field` of an ARRAY of STRUCTs is an ARRAY of the
field. ARRAYs, MAPs and STRUCTs are made, taken apart, CAST, united and selected, but not compared: compare their parts.
The keys of a MAP are text. What is inside of a new one may be NULL.

- Two types become one as in Spark, except that text is not read as a number behind the user's back: write a CAST. Text
  that is written out becomes a date or timestamp where it meets one.
- TINYINT and SMALLINT are INT; a CAST to them fails on what does not fit.
- Whole numbers and decimals are compared exactly, also where no DECIMAL of 38 digits could hold both. What unites
  values, such as COALESCE or UNION, needs one that can.
- `a / b` is DOUBLE for whole numbers, and a decimal with Spark's digits for decimals: of more than 38, those behind the
  point go first, but six stay.
- Text becomes a number, date or timestamp as in Spark; years have four digits, a timestamp has a date, and numbers are
  decimal (Java also reads `0x1p3`). Numbers that are too large to be a timestamp fail.
- A DOUBLE becomes text with the fewest digits that tell it from others, as in Java 19 and later. In a CAST
  of BINARY to STRING, what is not UTF-8 becomes U+FFFD.

## Where Flink SQL differs

- `/` of whole numbers is whole in Flink. `TIMESTAMPDIFF` is INT there, BIGINT here.
- `GREATEST` and `LEAST` are NULL in Flink where an argument is; `CONCAT` of numbers is refused there.
- `TO_TIMESTAMP` gives a timestamp without a time zone in Flink; here an instant, and `TO_TIMESTAMP_NTZ` the other.
- `TRIM` and its kin take the characters to trim in Spark's order; `SUBSTRING(s, 0)` begins at the first character.
- `ROUND` of a DOUBLE rounds the number as it is written. A DECIMAL division keeps other digits than Flink's.
- NOW, CURRENT_TIMESTAMP, RAND, UUID and their kin are refused; Flink computes them again for a retraction.
- `LOG(base, x)` and `LN` of what is not positive are NULL.

## Operators

| operator | takes | gives |
|---|---|---|
| `+` `-` `*` | numbers | their common type, or a decimal with the digits it needs |
| `+` `-` | a date and a number of days; a date or timestamp and an INTERVAL written out | DATE, TIMESTAMP |
| `/` | numbers | DOUBLE or a decimal |
| `DIV` | whole numbers or decimals | BIGINT |
| `%` | numbers | as `MOD` |
| `&` `\\|` `^` `~` `<<` `>>` | whole numbers | their common type |
| `=` `<>` `<` `<=` `>` `>=` `<=>` `IS [NOT] DISTINCT FROM` `BETWEEN` `IN (…)` | values of a common type | BOOLEAN |
| `AND` `OR` `NOT` `IS [NOT] NULL` `IS [NOT] TRUE` `IS [NOT] FALSE` | conditions | BOOLEAN |
| `LIKE` `ILIKE` `RLIKE`, also `LIKE ANY (…)` and `LIKE ALL (…)` | text, a pattern (`RLIKE`: written out) | BOOLEAN |
| `\\|\\|` | as `CONCAT` | STRING or BINARY |
| `CAST(x AS t)` `x::t` `TRY_CAST(x AS t)` | a value | the type |
| `CASE` `IF` `COALESCE` `NULLIF` | values of a common type | that type |
| `x -> …` `(x, y) -> …` | the argument of functions of functions; it may read columns and outer parameters | |

## Several rows of one

| written | gives |
|---|---|
| `FROM t CROSS JOIN UNNEST(a) AS u(x)`, also `t, UNNEST(a)` and `LEFT JOIN … ON TRUE`, with `WITH ORDINALITY` \
| a row for each element of an array, or key and value of a map; fields of structs are columns; numbers from 1 |
| `LATERAL VIEW [OUTER] f(a) u AS x`, `FROM t, LATERAL f(a) AS u(x)`, `SELECT f(a)` \
| the same by `EXPLODE`, `POSEXPLODE` (numbers from 0), `INLINE` (fields of structs), each also with `_OUTER`, or a \
table function of the job |
| `GROUP BY [a,] ROLLUP (b, c)`, `CUBE (…)`, `GROUPING SETS ((a, b), ())`, also `WITH ROLLUP` and `WITH CUBE` \
| each row in the group of each set; `GROUPING(a)` and `GROUPING_ID(…)` say which. As in Spark there is a row of `()` \
only where there are rows, but for `GROUPING SETS (())` alone |
"""


def page() -> str:
    """Return the page."""
    return "\n".join(
        [_HEAD, f"## Functions\n\n{len(FUNCTIONS)} names. {_share()}\n", *_families(), *_aggregates(), *_refused()]
    )


def _share() -> str:
    found = coverage()
    total = len(found.supported) + len(found.senseless) + len(found.refused) + len(found.missing)
    return (
        f"Of the {total} scalar functions and operators that Spark 4.3 lists, {len(found.supported)} are here, "
        f"{100 * found.share:.1f} % of those that make sense: {len(found.senseless)} do not in a result that is "
        f"kept up to date or without the JVM, as they depend on chance, the clock or the session, or read formats of "
        f"the JVM's libraries; {len(found.refused)} others are refused. Each is listed below with its reason."
    )


def _families() -> Iterator[str]:
    for title, functions in FAMILIES.items():
        yield f"### {title}\n\n| function | gives | remarks |\n|---|---|---|"
        yield from (_line(function) for function in functions if function.names != "[]")
        yield ""
    yield (
        "What stands in quotes must be written out in the query. `...` is one or more. An *int* is an INT, a *bigint* "
        "any whole number, a *number* any number, a *double* any number taken as DOUBLE; a *moment* is a DATE, "
        "TIMESTAMP or TIMESTAMP_NTZ, and a *unit* is one of MICROSECOND … YEAR, without quotes. *any* is a value that "
        "is no ARRAY, MAP or STRUCT, a *value* any value.\n\n"
        f"Python computes row by row, and so more slowly than whole columns: {', '.join(_BY_ROW)}.\n"
    )


_BY_ROW = (
    "casts of odd timestamps, of DOUBLEs below 0.001 or from 10,000,000 and of BINARY to text",
    "products and quotients of DECIMALs that lose digits",
    "ROUND and BROUND of a DOUBLE, RINT, BIN, CONV, WIDTH_BUCKET",
    "UPPER and LOWER beyond ASCII, INITCAP, REVERSE, LEVENSHTEIN, JARO_WINKLER_SIMILARITY, SOUNDEX, SPLIT_PART",
    "SUBSTRING_INDEX, FIND_IN_SET, MASK, LUHN_CHECK, FORMAT_NUMBER, %f of FORMAT_STRING, TO_CHAR, TO_NUMBER",
    "the functions of URLs",
    "SHA2 of 224, 384 and 512 bits, CRC32, UNHEX, UNBASE64, TO_BASE32, FROM_BASE32, BITMAP_COUNT",
    "MONTHS_BETWEEN and time zones",
    "FROM_JSON and JSON_OBJECT_KEYS, and GET_JSON_OBJECT of JSON that is not strict",
)
"""The functions that are computed row by row in Python."""

_TYPE_OF_TYPES = re.compile(r"\b[A-Z]+<[^|]*>")
"""Matches types that Markdown would take for an HTML tag."""


def _line(function: ScalarFunction) -> str:
    takes = function.takes.replace("|", "\\|")
    names = "<br>".join(f"`{name}({takes})`" for name in function.names.split())
    gives = _TYPE_OF_TYPES.sub(r"`\g<0>`", _result(function))
    return f"| {names} | {gives} | {function.note} |"


def _result(function: ScalarFunction) -> str:
    if isinstance(function.gives, str):
        return function.gives
    if isinstance(function.gives, Type):
        return function.gives.sql + (" or NULL" if function.gives.nullable else "")
    text = str(function.gives.__doc__ or "their common type").splitlines()[0].rstrip(".")
    return text[0].lower() + text[1:] if text[1].islower() else text


def _aggregates() -> Iterator[str]:
    yield (
        "## Aggregate functions\n\nEach of them takes back what is taken back of its input, exactly: a result is that "
        "of the rows that are there, however they came. `FILTER (WHERE …)` may stand behind each, and `DISTINCT` in "
        "each but COUNT_IF and those of y and x; that keeps all different values, each with its number of rows. Over "
        "a whole partition, `OVER (PARTITION BY …)` or `OVER ()`, they are joined back to its rows.\n"
    )
    yield "| function | gives | what is kept of a group | remarks |\n|---|---|---|---|"
    for entry in TABLE:
        names = "<br>".join(f"`{name}({entry.takes})`" for name in entry.names.split())
        yield f"| {names} | {entry.gives} | {entry.keeps} | {entry.note} |"
    yield "\n### Refused aggregate functions\n\n| function | reason |\n|---|---|"
    yield from _by_reason(REFUSED_AGGREGATES)


def _refused() -> Iterator[str]:
    yield "## Refused\n\nKnown names that are refused as functions of values, and why; unknown names are refused too.\n"
    yield "| function | reason |\n|---|---|"
    yield from _by_reason(REFUSED)


def _by_reason(refused: Mapping[str, str]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"| {', '.join(f'`{name}`' for name in names)} | {reason} |"
    yield ""
