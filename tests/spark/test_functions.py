"""Spark SQL is the oracle of every function in the tables."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from service.plan.functions import FAMILIES, FUNCTIONS
from tests.spark.calls import COLUMNS, calls, functions, values
from tests.spark.sql_oracle import compiled, differences, frame_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SEED = 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_function_means_what_it_means_in_spark(spark: SparkSession, family: str) -> None:
    """Over empty, negative, extreme, unicode, NaN, -0.0 and NULL values, each name gives Spark's type and values."""
    print(f"seed {SEED}")
    columns = values(SEED)
    frame = frame_of(spark, COLUMNS, columns)
    texts = {text: function.close for function in FAMILIES[family] for text in calls(function)}
    expressions = {text: known for text in texts if (known := compiled(text, COLUMNS)) is not None}
    for text in texts.keys() - expressions.keys():
        with pytest.raises(AnalysisException):
            frame.selectExpr(text)
    wrong = differences(frame, COLUMNS, columns, expressions, [text for text, close in texts.items() if close])
    assert not wrong, "\n".join(wrong)


def test_every_function_is_called() -> None:
    """No name is left out of the comparison, and the calls of each are those of one that exists."""
    called = {text.partition("(")[0] for function in functions() for text in calls(function)}
    assert called == set(FUNCTIONS)
