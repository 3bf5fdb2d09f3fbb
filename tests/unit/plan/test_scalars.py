"""Expressions without Spark: nested columns, parts that are not evaluated, and messages of refusals."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from rowkind.avro.schema import Record
from rowkind.service.execute.expressions import ExpressionError, evaluate
from rowkind.service.physical.expression import Expression
from rowkind.service.plan.errors import Refusal, mark
from rowkind.service.plan.scalar.scalars import compile_condition, compile_scalar
from rowkind.service.plan.sql.dialect import RowkindSql
from rowkind.service.plan.sql.scope import Relation, Scope

TABLE = Record.of(
    {
        "id": "INT NOT NULL",
        "s": "STRING",
        "x": "DOUBLE",
        "ts": "TIMESTAMP",
        "wide": "DECIMAL(50,2)",
        "addr": "STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE, tags: ARRAY<STRING>>, at: TIMESTAMP_NTZ(3)>",
        "items": "ARRAY<STRUCT<sku: STRING, n: INT>>",
        "stock": "MAP<STRING, BIGINT>",
    }
)
ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 0],
    "s": ["12", "no number", None],
    "x": [0.5, 0.0, None],
    "addr": [{"city": "Ulm", "geo": {"lat": 1.5, "tags": ["x", None]}, "at": None}, None,
             {"city": None, "geo": None, "at": None}],
    "items": [[{"sku": "a", "n": 1}], [], None],
    "stock": [[("a", 1)], [], None],
}  # fmt: skip


def compiled(text: str) -> Expression:
    """Compile the expression over the columns of `o`."""
    sql = f"SELECT {text}"
    tree = mark(sqlglot.parse_one(sql, read=RowkindSql), "q", sql).expressions[0].unalias()
    scope = Scope((Relation("o", {name: f"o.{name}" for name in TABLE.names}),), {})
    columns = {f"o.{field.name}": (field.name, field.type) for field in TABLE.fields}
    return compile_scalar(scope.resolve(tree), columns)


def values(text: str) -> list[Any]:
    """Return the values of the expression in three rows."""
    expression = compiled(text)
    arrays = {name: pa.array(ROWS[name], TABLE.type(name).arrow) for name in expression.columns}
    found: list[Any] = evaluate([expression], arrays, 3)[expression].to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("o.addr.city", ["Ulm", None, None]),
        ("UPPER(addr.CITY)", ["ULM", None, None]),
        ("addr.geo.lat + 1", [2.5, None, None]),
        ("addr.geo.tags[0]", ["x", None, None]),
        ("addr.geo", [{"lat": 1.5, "tags": ["x", None]}, None, None]),
        ("DATE_TRUNC('day', addr.at)", [None, None, None]),
        ("GET(items, 0).sku", ["a", None, None]),
        ("SIZE(items)", [1, 0, None]),
        ("stock['a']", [1, None, None]),
        ("addr IS NULL", [False, True, False]),
    ],
)
def test_nested_columns_are_looked_into(text: str, expected: list[Any]) -> None:
    """A field, element or entry is NULL if its struct, array or map is NULL or does not have it."""
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("items.sku", [["a"], [], None]),
        ("STRUCT(id, addr.city AS town, 1)", [{"id": 1, "town": "Ulm", "col3": 1}, {"id": 2, "town": None, "col3": 1},
                                              {"id": 0, "town": None, "col3": 1}]),
        ("TRANSFORM(items, x -> STRUCT(x.sku AS k, x.n + id AS m))", [[{"k": "a", "m": 2}], [], None]),
        ("TRANSFORM(ARRAY(id, 7), (x, i) -> x * 10 + i)", [[10, 71], [20, 71], [0, 71]]),
        ("TRANSFORM(ARRAY(ARRAY(id)), x -> TRANSFORM(x, y -> y + x[0]))", [[[2]], [[4]], [[0]]]),
        ("AGGREGATE(items, '', (a, x) -> CONCAT(a, x.sku))", ["a", "", None]),
        ("ARRAY_JOIN(TRANSFORM(addr.geo.tags, each_1 -> COALESCE(each_1, s)), s)", ["x1212", None, None]),
        ("COALESCE(items, ARRAY(STRUCT('z' AS sku, 9 AS n)))", [[{"sku": "a", "n": 1}], [], [{"sku": "z", "n": 9}]]),
        ("CAST(stock AS MAP<STRING, STRING>)['a']", ["1", None, None]),
        ("CAST(items AS STRING)", ["[{a, 1}]", "[]", None]),
        ("TO_JSON(addr)", ['{"city":"Ulm","geo":{"lat":1.5,"tags":["x",null]}}', None, "{}"]),
        ("FROM_JSON(s, 'a INT').a", [None, None, None]),
        ("TRANSFORM(ARRAY(id), S -> s + 1)", [[2], [3], [1]]),
        ("SMALLINT(id)", [1, 2, 0]),
        ("SUBSTRING('abcd', CAST(id + 1 AS BIGINT))", ["bcd", "cd", "abcd"]),
    ],
)  # fmt: skip
def test_nested_values_are_made(text: str, expected: list[Any]) -> None:
    """Arrays, maps and structs can be built, cast and folded, and a lambda can read columns."""
    assert values(text) == expected


def test_a_pattern_of_like_may_be_computed() -> None:
    """A computed LIKE pattern is checked for each row; a constant one is checked when the query is planned."""
    assert values("s LIKE CONCAT('1', '_')") == [True, False, None]
    assert values("'10%' LIKE CONCAT(CAST(id AS STRING), '_!%') ESCAPE '!'") == [True, False, False]
    assert values("'A' ILIKE LOWER(CONCAT(SUBSTRING(s, 3), 'A'))") == [True, False, None]
    assert values("'A' NOT LIKE CONCAT(SUBSTRING(s, 3), '%')") == [False, True, None]
    with pytest.raises(ExpressionError, match=r"must be followed by %, _ or itself: !1"):
        values("s LIKE CONCAT('!', CAST(id AS STRING)) ESCAPE '!'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s RLIKE '^[0-9]+$' AND CAST(s AS INT) > 5", [True, False, None]),
        ("NOT (s RLIKE '^[0-9]+$') OR CAST(s AS INT) > 5", [True, True, None]),
        ("CASE WHEN id = 0 THEN NULL ELSE 6 DIV id END", [6, 3, None]),
        ("IF(x > 0, 1 / x, 0)", [2.0, 0.0, 0.0]),
        ("COALESCE(x, 1 / id)", [0.5, 0.0, None]),
    ],
)
def test_what_does_not_count_is_not_evaluated(text: str, expected: list[Any]) -> None:
    """An operand of AND, OR, CASE, IF or COALESCE cannot fail in rows whose result does not depend on it."""
    if text.startswith("COALESCE"):
        with pytest.raises(ExpressionError, match="division by zero"):
            values(text)
    else:
        assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CAST(s AS INT)", "'no number' is not a value of type INT: TRY_CAST returns NULL for such text"),
        ("1 / x", "division by zero: TRY_DIVIDE returns NULL instead"),
        ("items[0].n", "the array has no element 0: GET and TRY_ELEMENT_AT return NULL instead"),
    ],
)
def test_what_fails_says_on_which_value_and_what_to_write(text: str, reason: str) -> None:
    """The error has the value and names the function that returns NULL instead."""
    with pytest.raises(ExpressionError) as caught:
        values(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NOW()", "the function NOW is not supported: it would return a different value when the row is retracted"),
        ("CURRENT_DATE", "the function CURRENT_DATE is not supported: it would return a different value"),
        ("UNIX_TIMESTAMP()", "the function UNIX_TIMESTAMP is not supported: it would return a different value"),
        ("UUID()", "the function UUID is not supported: it would return a different value when the row is retracted"),
        ("PROCTIME()", "it is allowed only as a column of the SELECT list"),
        ("FROBNICATE(id)", "the function FROBNICATE is not supported"),
        ("SPLIT(s, '[')", "'[' in the pattern '[' is not supported"),
        ("SPLIT(s, '[,;]', 2)", "can match more than one text"),
        ("MAP(1, 'a')", "the keys of a MAP must be text, not INT: write CAST(… AS STRING)"),
        ("ARRAY(NULL)", "an ARRAY with only NULLs has no type"),
        ("ARRAY(id, s)", "INT and STRING cannot be combined here"),
        ("STRUCT(id, id)", "two fields have the same name: rename one of them with AS"),
        ("TRANSFORM(items, x -> y)", "o has no column y"),
        (
            "TRANSFORM(items, (x, i, j) -> x)",
            "a lambda's parameters must have different names, and there can be at most 2 of them here, not 3",
        ),
        ("FILTER(items, x -> x.n)", "the lambda returns INT, not a condition"),
        (
            "AGGREGATE(items, 0, (a, x) -> a + 1.5)",
            "the start value has type INT, but the lambda returns DECIMAL(12,1)",
        ),
        ("ARRAY_SORT(items, (a, b) -> 1)", "ARRAY_SORT takes (array)"),
        ("SORT_ARRAY(items)", "have no order"),
        ("UPPER(x -> x)", "expected text"),
        ("FROM_JSON(s, 'a DATE')", "FROM_JSON cannot read DATE: read a STRING, and CAST it"),
        ("FROM_JSON(s, s)", "expected a string literal"),
        ("FORMAT_STRING('%e', x)", "%e for type DOUBLE is not supported"),
        ("TO_CHAR(x, '99')", "TO_CHAR takes a decimal: write CAST(… AS DECIMAL(p,s))"),
        (
            "TO_CHAR(id, 'S99')",
            "the format 'S99' is not supported: write digits (9 and 0) with commas and a decimal point",
        ),
        ("TO_CSV(addr)", "write CONCAT_WS"),
        ("CAST(ARRAY(id) AS ARRAY<SMALLINT>)", "TINYINT and SMALLINT cannot be nested in another type; use INT"),
        ("UPPER(id)", "expected text, got INT: write CAST(… AS STRING)"),
        ("LPAD(s)", "LPAD takes (text, int) or (text, int, text)"),
        ("HEX(ts)", "HEX takes (text) or (binary) or (bigint), but the arguments are (TIMESTAMP)"),
        ("id.x", "type INT has no field x"),
        ("addr.street", "there is no field street; available: city, geo, at"),
        ("addr = addr", "cannot be compared or used in computations: they can only be selected unchanged"),
        ("wide + 1", "values of type DECIMAL(50,2) cannot be compared or used in computations"),
        ("s RLIKE '(?=a)'", "lookahead, lookbehind"),
        ("s RLIKE '('", "'(' is not a regular expression"),
        ("TO_DATE(s, 'yyyy-ww')", "ww in the pattern 'yyyy-ww' is not supported"),
        ("TO_TIMESTAMP(s, 'HH:mm')", "needs a complete date"),
        ("ts - ts", "write DATEDIFF or TIMESTAMPDIFF(SECOND, from, to)"),
        ("ts + INTERVAL id DAY", "expected an INTERVAL literal"),
        ("INTERVAL 1 DAY", "an INTERVAL that is not added to a date or timestamp is not supported"),
        ("EXTRACT(CENTURY FROM ts)", "CENTURY is not a unit of EXTRACT"),
        ("CAST('x' AS INT)", "'x' is not a value of type INT"),
        ("CAST(ts AS BOOLEAN)", "CAST from TIMESTAMP to BOOLEAN is not supported, as in Spark"),
        ("x & 1", "bitwise operators take only integers"),
    ],
)
def test_what_is_refused_says_why(text: str, reason: str) -> None:
    """An unsupported function or form is refused when the query is planned, with the reason."""
    with pytest.raises(Refusal) as caught:
        compiled(text)
    assert reason in caught.value.text


def test_a_condition_of_many_parts_stops_where_one_is_false() -> None:
    """The conjuncts of a WHERE are evaluated from left to right until one is false."""
    parts = [
        sqlglot.parse_one(f"SELECT {text}", read=RowkindSql).expressions[0] for text in ("id > 1", "1 DIV (id - 1) = 1")
    ]
    condition = compile_condition(parts, {"id": ("id", TABLE.type("id"))})
    assert condition is not None
    found = evaluate([condition], {"id": pa.array([1, 2, 3], pa.int32())}, 3)[condition].to_pylist()
    assert found == [False, True, False]


def test_calls_inside_of_calls_have_a_limit() -> None:
    """An expression that is nested too deeply is refused when the query is planned."""
    text = "s"
    for _ in range(12):
        text = f"CAST(CAST({text} AS DOUBLE) AS STRING)"
    with pytest.raises(Refusal, match="nested too deeply"):
        compiled(text)
