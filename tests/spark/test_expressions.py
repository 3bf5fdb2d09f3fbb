"""Random scalar expressions, compared with Spark SQL: the same types and the same values, row by row."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from tests.spark.expressions import COLUMNS, random_expression, random_value
from tests.spark.sql_oracle import compiled, differences, frame_of

pytestmark = pytest.mark.spark

ROWS = 40
EXPRESSIONS = 80


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_mean_what_spark_means(spark: SparkSession, seed: int) -> None:
    """An expression that is not refused has Spark's type and values in every row, with NaN, NULL and overflow."""
    rng = random.Random(seed)
    columns = {name: [random_value(rng, name) for _ in range(ROWS)] for name in COLUMNS.names}
    expressions = {}
    while len(expressions) < EXPRESSIONS:
        text = random_expression(rng, 3)
        expression = compiled(text, COLUMNS)
        if expression is not None:
            expressions[text] = expression
    wrong = differences(frame_of(spark, COLUMNS, columns), COLUMNS, columns, expressions)
    assert not wrong, "\n".join(wrong)
