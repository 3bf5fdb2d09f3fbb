"""Every function in the tables, compared with Spark SQL."""

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
    """Each name gives Spark's type and values for empty, negative, extreme, Unicode, NaN, -0.0 and NULL arguments."""
    print(f"seed {SEED}")
    compare(spark, {text: function.close for function in FAMILIES[family] for text in calls(function)})


def test_every_cast_means_what_it_means_in_spark(spark: SparkSession) -> None:
    """CAST and TRY_CAST of every type to every other type give Spark's value, or both refuse them."""
    print(f"seed {SEED}")
    frame = frame_of(spark, COLUMNS, values(SEED))
    for text in compare(spark, dict.fromkeys(casts(), False)):
        with pytest.raises(AnalysisException):
            frame.selectExpr(text)


def test_numbers_of_all_types_go_together_as_in_spark(spark: SparkSession) -> None:
    """Arithmetic and comparisons of two numbers have Spark's type, with the same precision and scale of decimals."""
    print(f"seed {SEED}")
    assert not compare(spark, dict.fromkeys(ARITHMETIC, False))


def compare(spark: SparkSession, texts: Mapping[str, bool]) -> list[str]:
    """Compare with Spark, ignoring the last digit where a text allows it; return the texts that are refused."""
    columns = values(SEED)
    frame = frame_of(spark, COLUMNS, columns)
    expressions = {text: known for text in texts if (known := compiled(text, COLUMNS)) is not None}
    wrong = differences(frame, COLUMNS, columns, expressions, [text for text, close in texts.items() if close])
    assert not wrong, "\n".join(wrong)
    return [text for text in texts if text not in expressions]


def test_the_list_of_functions_is_that_of_spark(spark: SparkSession) -> None:
    """The list behind the coverage figure in the reference is the list that Spark shows."""
    assert set(spark_functions()) == {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}


def test_every_function_is_called() -> None:
    """The comparison calls every function, and calls no function that does not exist."""
    texts = [text for function in functions() for text in calls(function)]
    assert {text.partition("(")[0] for text in texts if compiled(text, COLUMNS) is not None} == set(FUNCTIONS)
