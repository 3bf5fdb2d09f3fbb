"""Spark SQL is the oracle of every function in the tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from generators.function_coverage import spark_functions
from rowkind.service.plan.scalar.functions import FAMILIES, FUNCTIONS
from tests.spark.calls import ARITHMETIC, COLUMNS, calls, casts, functions, values
from tests.spark.sql_oracle import compiled, differences, frame_of

pytestmark = pytest.mark.spark

SEED = 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_function_means_what_it_means_in_spark(spark: SparkSession, family: str) -> None:
    """Over empty, negative, extreme, unicode, NaN, -0.0 and NULL values, each name gives Spark's type and values."""
    print(f"seed {SEED}")
    compare(spark, {text: function.close for function in FAMILIES[family] for text in calls(function)})


def test_every_cast_means_what_it_means_in_spark(spark: SparkSession) -> None:
    """CAST and TRY_CAST of every type to every other one give Spark's value, or are refused by both."""
    print(f"seed {SEED}")
    frame = frame_of(spark, COLUMNS, values(SEED))
    for text in compare(spark, dict.fromkeys(casts(), False)):
        with pytest.raises(AnalysisException):
            frame.selectExpr(text)


def test_numbers_of_all_types_go_together_as_in_spark(spark: SparkSession) -> None:
    """Signs and comparisons of two numbers have Spark's type, with the digits of its decimals."""
    print(f"seed {SEED}")
    assert not compare(spark, dict.fromkeys(ARITHMETIC, False))


def compare(spark: SparkSession, texts: Mapping[str, bool]) -> list[str]:
    """Compare with Spark, some but for the last digit; the texts that are refused."""
    columns = values(SEED)
    frame = frame_of(spark, COLUMNS, columns)
    expressions = {text: known for text in texts if (known := compiled(text, COLUMNS)) is not None}
    wrong = differences(frame, COLUMNS, columns, expressions, [text for text, close in texts.items() if close])
    assert not wrong, "\n".join(wrong)
    return [text for text in texts if text not in expressions]


def test_the_list_of_functions_is_that_of_spark(spark: SparkSession) -> None:
    """What the share in the reference counts is what Spark lists."""
    assert set(spark_functions()) == {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}


def test_every_function_is_called() -> None:
    """No name is left out of the comparison, and the calls of each are those of one that exists."""
    texts = [text for function in functions() for text in calls(function)]
    assert {text.partition("(")[0] for text in texts if compiled(text, COLUMNS) is not None} == set(FUNCTIONS)
