"""Compare scalar expressions with Spark SQL: same types, same values, failures in the same rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from rowkind.avro.schema import Record
from rowkind.service.execute.expressions import ExpressionError, evaluate
from rowkind.service.physical.expression import Expression
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.fields import field_of, with_fields
from rowkind.service.plan.scalar.scalars import compile_scalar, resolved
from rowkind.service.plan.scalar.types import BOOLEAN
from rowkind.service.plan.sql.dialect import RowkindSql

AT_ONCE = 40


def frame_of(spark: SparkSession, table: Record, columns: Mapping[str, list[Any]]) -> DataFrame:
    """Return the columns as a Spark frame, with the number of each row."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    # Users run Spark with generated code. The interpreted LEVENSHTEIN returns -1 if its threshold is NULL.
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    rows = [(row, *rest) for row, rest in enumerate(zip(*columns.values(), strict=True))]
    return spark.createDataFrame(rows, f"row INT, {_ddl(table)}")


def differences(
    frame: DataFrame,
    table: Record,
    columns: Mapping[str, list[Any]],
    expressions: Mapping[str, Expression],
    close: Sequence[str] = (),
    *,
    local: bool = True,
) -> list[str]:
    """Return the differences to Spark, one per line. For texts in `close`, the last digit of a DOUBLE may differ.

    With `local`, failing rows are checked in a separate local frame, whose values must be in Python's range.
    """
    ours = {text: evaluated(expression, table, columns) for text, expression in expressions.items()}
    wrong = []
    for text, (type_, column) in _theirs(frame, {text: rows for text, (_, rows) in ours.items()}).items():
        expected, failed = ours[text]
        if expressions[text].type.sql.replace(": ", ":").replace(", ", ",").upper() != _known(type_):
            wrong.append(f"{text} is {expressions[text].type}, in Spark {type_}")
        for row, (a, b) in enumerate(zip(expected, column, strict=True)):
            if row not in failed and not _same(a, b, close=text in close):
                given = {name: columns[name][row] for name in expressions[text].columns}
                wrong.append(f"{text} with {given} gives {a!r}, in Spark {b!r}")
    rows = _local(frame.sparkSession, table, columns) if local else frame
    for text, (_, failed) in ours.items():
        for row in sorted(failed)[:1]:
            if not _fails(rows, text, row):
                given = {name: columns[name][row] for name in expressions[text].columns}
                wrong.append(f"{text} with {given} fails, but not in Spark")
    return wrong


def compiled(text: str, table: Record) -> Expression | None:
    """Compile an expression over the columns of a table; None if it is refused."""
    tree = sqlglot.parse_one(f"SELECT {text}", read=RowkindSql).expressions[0].unalias()
    tree = tree.transform(lambda node: _resolved(node) if isinstance(node, exp.Column) else node)
    try:
        return compile_scalar(tree, {field.name: (field.name, field.type) for field in table.fields})
    except Refusal:
        return None


def _resolved(column: exp.Column) -> exp.Expr:
    bare, fields = with_fields(column, lambda _: False)
    return field_of(resolved(bare.name), fields)


def evaluated(expression: Expression, table: Record, columns: Mapping[str, list[Any]]) -> tuple[list[Any], set[int]]:
    """Return the value in each row, and the rows whose evaluation fails."""
    arrays = {name: pa.array(columns[name], table.type(name).arrow) for name in expression.columns}
    rows = len(next(iter(columns.values())))
    try:
        return evaluate([expression], arrays, rows)[expression].to_pylist(), set()
    except ExpressionError:
        # A NULL value is not a failure.
        tried = replace(expression, sql=f"TRY(ROW({expression.sql})) IS NULL", type=BOOLEAN)
        failed = evaluate([tried], arrays, rows)[tried].to_numpy(zero_copy_only=False)
        left = {name: array.filter(pa.array(~failed)) for name, array in arrays.items()}
        values = iter(evaluate([expression], left, rows - int(failed.sum()))[expression].to_pylist())
        return [None if fails else next(values) for fails in failed], set(np.flatnonzero(failed).tolist())


def _theirs(frame: DataFrame, failing: dict[str, set[int]]) -> dict[str, tuple[str, list[Any]]]:
    """Return Spark's type and values of each text, without the rows that are known to fail."""
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


def _local(spark: SparkSession, table: Record, columns: Mapping[str, list[Any]]) -> DataFrame:
    """Return columns and row numbers as a local frame.

    Spark's optimizer evaluates it, in a third of the time of a job.
    """
    rows = pa.table({field.name: pa.array(columns[field.name], field.type.arrow) for field in table.fields})
    numbers = pa.array(range(rows.num_rows), pa.int32())
    return spark.createDataFrame(rows.append_column("row", numbers), StructType.fromDDL(_ddl(table) + ", row INT"))


def _known(type_: str) -> str:
    """Return Spark's name of a type, with INT for narrower integers, which Rowkind does not have."""
    return re.sub("TINYINT|SMALLINT", "INT", type_).replace(", ", ",")


def _ddl(table: Record) -> str:
    return ", ".join(f"{field.name} {field.type.sql}" for field in table.fields)


def _fails(rows: DataFrame, text: str, row: int) -> bool:
    """Return whether Spark fails to evaluate a text in a row."""
    try:
        rows.where(f"row = {row}").selectExpr(text).collect()
    except (PySparkException, Py4JJavaError):  # Spark has many error classes
        return True
    return False


def _same(ours: Any, theirs: Any, *, close: bool) -> bool:
    """Return whether two values are identical: NaN equals NaN, 0.0 differs from -0.0, and times are in UTC."""
    if isinstance(ours, dict) and isinstance(theirs, Row):
        ours, theirs = list(ours.items()), list(theirs.asDict().items())
    if isinstance(ours, list) and isinstance(theirs, dict):
        # Maps from the JVM have lost their order.
        ours, theirs = sorted(ours), sorted(theirs.items())
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(_same(a, b, close=close) for a, b in pairs)
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
