"""Spark SQL as the oracle of scalar expressions: same types, same values, failures in the same rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from rowkind.avro.schema import Record
from rowkind.service.execute.expressions import ExpressionError, evaluate
from rowkind.service.physical import Expression
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.scalars import compile_scalar, resolved
from rowkind.service.plan.sql.dialect import RowkindSql

AT_ONCE = 40


def frame_of(spark: SparkSession, table: Record, columns: Mapping[str, list[Any]]) -> DataFrame:
    """The columns in Spark, and the number of each row."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    # As users of Spark know it: without, LEVENSHTEIN makes -1 of a threshold that is NULL.
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    types = "row INT, " + ", ".join(f"{field.name} {field.type.sql}" for field in table.fields)
    return spark.createDataFrame([(row, *rest) for row, rest in enumerate(zip(*columns.values(), strict=True))], types)


def differences(
    frame: DataFrame,
    table: Record,
    columns: Mapping[str, list[Any]],
    expressions: Mapping[str, Expression],
    close: Sequence[str] = (),
) -> list[str]:
    """What differs from Spark, a line each. Of the texts in `close` the last digit of a DOUBLE may differ."""
    ours = {text: evaluated(expression, table, columns) for text, expression in expressions.items()}
    wrong = []
    for text, (type_, column) in _theirs(frame, {text: rows for text, (_, rows) in ours.items()}).items():
        expected, failed = ours[text]
        if expressions[text].type.sql != type_:
            wrong.append(f"{text} is {expressions[text].type}, in Spark {type_}")
        for row, (a, b) in enumerate(zip(expected, column, strict=True)):
            if row not in failed and not _same(a, b, close=text in close):
                given = {name: columns[name][row] for name in expressions[text].columns}
                wrong.append(f"{text} with {given} gives {a!r}, in Spark {b!r}")
    for text, (_, failed) in ours.items():
        for row in sorted(failed)[:1]:
            if not _fails(frame, text, row):
                given = {name: columns[name][row] for name in expressions[text].columns}
                wrong.append(f"{text} with {given} fails, but not in Spark")
    return wrong


def compiled(text: str, table: Record) -> Expression | None:
    """The expression over the columns of a table, None if it is refused."""
    tree = sqlglot.parse_one(f"SELECT {text}", read=RowkindSql).expressions[0].unalias()
    tree = tree.transform(lambda node: resolved(node.name) if isinstance(node, exp.Column) else node)
    try:
        return compile_scalar(tree, {field.name: (field.name, field.type) for field in table.fields})
    except Refusal:
        return None


def evaluated(expression: Expression, table: Record, columns: Mapping[str, list[Any]]) -> tuple[list[Any], set[int]]:
    """The value in each row, and the rows in which there is none because the evaluation fails."""
    arrays = {name: pa.array(columns[name], table.type(name).arrow) for name in expression.columns}
    rows = len(next(iter(columns.values())))
    try:
        return evaluate([expression], arrays, rows)[expression].to_pylist(), set()
    except ExpressionError:
        return _halved(expression, arrays, 0, rows)


def _halved(expression: Expression, arrays: dict[str, pa.Array], begin: int, end: int) -> tuple[list[Any], set[int]]:
    """The same of some rows, looking for those that fail in one half and then the other."""
    if end - begin == 1:
        try:
            return _part(expression, arrays, begin, end), set()
        except ExpressionError:
            return [None], {begin}
    found: list[Any] = []
    failed: set[int] = set()
    middle = (begin + end) // 2
    for first, last in ((begin, middle), (middle, end)):
        try:
            found += _part(expression, arrays, first, last)
        except ExpressionError:
            values, rows = _halved(expression, arrays, first, last)
            found += values
            failed |= rows
    return found, failed


def _part(expression: Expression, arrays: dict[str, pa.Array], begin: int, end: int) -> list[Any]:
    """The values in the rows from `begin` to before `end`. Raises ExpressionError."""
    part = {name: array.slice(begin, end - begin) for name, array in arrays.items()}
    values: list[Any] = evaluate([expression], part, end - begin)[expression].to_pylist()
    return values


def _theirs(frame: DataFrame, failing: dict[str, set[int]]) -> dict[str, tuple[str, list[Any]]]:
    """Spark's type and values of each text, outside of the rows that are known to fail."""
    texts = list(failing)
    found = {}
    for begin in range(0, len(texts), AT_ONCE):
        group = texts[begin : begin + AT_ONCE]
        try:
            found |= _collected(frame, {text: failing[text] for text in group})
        except (PySparkException, Py4JJavaError, ValueError):  # one of them fails in Spark
            for text in group:
                try:
                    found |= _collected(frame, {text: failing[text]})
                except (PySparkException, Py4JJavaError, ValueError) as error:
                    pytest.fail(f"{text}: {str(error)[:400]}")
    return found


def _collected(frame: DataFrame, failing: dict[str, set[int]]) -> dict[str, tuple[str, list[Any]]]:
    guarded = [
        f"CASE WHEN row IN ({', '.join(map(str, sorted(rows)))}) THEN NULL ELSE {text} END" if rows else text
        for text, rows in failing.items()
    ]
    result = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(guarded)))
    columns = zip(*result.collect(), strict=True)
    return {
        text: (field.dataType.simpleString().upper(), list(column))
        for text, field, column in zip(failing, result.schema.fields, columns, strict=True)
    }


def _fails(frame: DataFrame, text: str, row: int) -> bool:
    """Whether Spark cannot evaluate a text in a row."""
    try:
        frame.where(f"row = {row}").selectExpr(text).collect()
    except (PySparkException, Py4JJavaError):  # any of the many that Spark has
        return True
    return False


def _same(ours: Any, theirs: Any, *, close: bool) -> bool:
    """Whether two values are the same one; NaN is NaN, 0.0 is not -0.0, times are those of UTC."""
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        if close:
            return math.isclose(ours, theirs, rel_tol=1e-13, abs_tol=1e-300)
        return ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)
    if hasattr(ours, "tzinfo") and hasattr(theirs, "tzinfo"):
        return bool(ours.replace(tzinfo=None) == theirs.replace(tzinfo=None))
    return bool(ours == theirs and type(ours) is type(theirs)) or (
        isinstance(theirs, bytes | bytearray) and isinstance(ours, bytes) and ours == bytes(theirs)
    )
