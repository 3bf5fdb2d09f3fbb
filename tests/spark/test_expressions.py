"""Spark SQL is the oracle of scalar expressions: the same types and the same values, row by row."""

from __future__ import annotations

import math
import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp

from service.expressions import ExpressionError, evaluate
from service.plan.dialect import RowkindSql
from service.plan.errors import Refusal
from service.plan.physical import Expression
from service.plan.scalars import compile_scalar, resolved
from tests.spark.expressions import COLUMNS, random_expression, random_value

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 40
EXPRESSIONS = 60


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_mean_what_spark_means(spark: SparkSession, seed: int) -> None:
    """What is not refused has Spark's type and Spark's value in every row, NaN, NULL and overflow included."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    columns = {name: [random_value(rng, name) for _ in range(ROWS)] for name in COLUMNS.names}
    texts, expressions = [], []
    while len(texts) < EXPRESSIONS:
        text = random_expression(rng, 3)
        expression = compiled(text)
        if expression is not None:
            texts.append(text)
            expressions.append(expression)
    ours, failed = evaluated(expressions, columns)

    rows = list(zip(*columns.values(), strict=True))
    types = ", ".join(f"{field.name} {field.type.sql}" for field in COLUMNS.fields)
    frame = spark.createDataFrame(rows, types)
    kept = [number for number in range(EXPRESSIONS) if number not in failed]
    theirs = frame.selectExpr(*(f"{texts[number]} AS c{number}" for number in kept))
    values = list(zip(*theirs.collect(), strict=True))

    for number, field, column in zip(kept, theirs.schema.fields, values, strict=True):
        where = f"{texts[number]}\n{expressions[number].sql}"
        assert expressions[number].type.sql == field.dataType.simpleString().upper(), where
        assert ours[number] == [normal(value) for value in column], where
    for number in failed:
        with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE|ARITHMETIC|CAST"):
            frame.selectExpr(texts[number]).collect()


def compiled(text: str) -> Expression | None:
    """The expression, None if it is refused."""
    tree = sqlglot.parse_one(f"SELECT {text}", read=RowkindSql).expressions[0].unalias()
    tree = tree.transform(lambda node: resolved(node.name) if isinstance(node, exp.Column) else node)
    try:
        return compile_scalar(tree, {field.name: (field.name, field.type) for field in COLUMNS.fields})
    except Refusal:
        return None


def evaluated(expressions: list[Expression], columns: dict[str, list[Any]]) -> tuple[dict[int, list[Any]], set[int]]:
    """The values of each expression by its number, and the numbers of those that fail on some row."""
    arrays = {field.name: pa.array(columns[field.name], field.type.arrow) for field in COLUMNS.fields}
    found, failed = {}, set()
    for number, expression in enumerate(expressions):
        read = {name: arrays[name] for name in expression.columns}
        try:
            values = evaluate([expression], read, ROWS)[expression]
        except ExpressionError:
            failed.add(number)
            continue
        found[number] = [normal(value) for value in values.to_pylist()]
    return found, failed


def normal(value: Any) -> Any:
    """A value that can be compared: NaN equal to itself, 0.0 as -0.0, times as those of UTC."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
