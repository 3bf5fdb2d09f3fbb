"""The aggregate functions by the names that a user can write: what each takes, gives and keeps, and what is refused.

The reference of functions is generated from this table. Results are Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.operators.aggregate.function import AggregateFunction


@dataclass(frozen=True)
class AggregateEntry:
    """Names of one function of the operator, with what stands in their parentheses, and what the reference says.

    `fewest` and `most` are how many arguments there may be.
    """

    names: str
    function: AggregateFunction
    takes: str
    gives: str
    keeps: str
    note: str = ""
    fewest: int = 1
    most: int = 1


_VALUE = "one value; where rows may be taken back, all different values"
_ROWS = "one value; where rows may be taken back, all values with their arrival"
_ALL = "all different values, each with its number of rows; a change reads those of its group"
_BITS = "a number of rows, and how many have each bit"
_PAIRS = "the numbers of rows, and the exact sums of y, x, xy, y² and x²"
_STAYS = "A row that goes and comes back in one batch has not gone"
_LEFT_OPEN = "Without ORDER BY the values ascend, whatever order they came in"

TABLE: tuple[AggregateEntry, ...] = (
    AggregateEntry(
        "COUNT", "count", "*, or values", "BIGINT", "a number of rows", "Of several values, rows where none is NULL",
        0, 1000,
    ),
    AggregateEntry("COUNT_IF", "count", "condition", "BIGINT", "a number of rows"),
    AggregateEntry(
        "APPROX_COUNT_DISTINCT", "count", "value [, error]", "BIGINT", _ALL.partition(";")[0],
        "The exact number, as of COUNT(DISTINCT …): a sketch cannot take a row back", 1, 2,
    ),
    AggregateEntry("SUM TRY_SUM", "sum", "number", "BIGINT, DOUBLE or a decimal", "a number of rows and an exact sum",
                   "A sum that does not fit its type fails the row, as any expression does; TRY_SUM is NULL there"),
    AggregateEntry("AVG MEAN TRY_AVG", "avg", "number", "DOUBLE or a decimal", "a number of rows and an exact sum"),
    AggregateEntry("MIN", "min", "value", "its type", _VALUE),
    AggregateEntry("MAX", "max", "value", "its type", _VALUE, "One value also of a column that only grows"),
    AggregateEntry("ANY_VALUE", "any_value", "value", "its type", _VALUE, "The least value; Spark may give NULL"),
    AggregateEntry(
        "MAX_BY", "max_by", "value, order", "the value's type", _VALUE, "NULLs in the order do not count. Of rows with "
        "the same order the one whose value comes last in bytes", 2, 2,
    ),
    AggregateEntry(
        "MIN_BY", "min_by", "value, order", "the value's type", _VALUE, "NULLs in the order do not count. Of rows with "
        "the same order the one whose value comes first in bytes", 2, 2,
    ),
    AggregateEntry(
        "FIRST FIRST_VALUE", "first", "value [, ignore nulls]", "its type", _ROWS, "The first of the rows that are "
        f"there, in the order in which they arrived; IGNORE NULLS takes the first value. {_STAYS}", 1, 2,
    ),
    AggregateEntry(
        "LAST LAST_VALUE", "last", "value [, ignore nulls]", "its type", _ROWS, "The last of the rows that are there, "
        f"in the order in which they arrived; IGNORE NULLS takes the last value. {_STAYS}", 1, 2,
    ),
    AggregateEntry("BOOL_AND EVERY", "bool_and", "condition", "BOOLEAN", "the numbers of true and of false"),
    AggregateEntry("BOOL_OR SOME ANY", "bool_or", "condition", "BOOLEAN", "the numbers of true and of false"),
    AggregateEntry("BIT_AND", "bit_and", "whole number", "its type", _BITS),
    AggregateEntry("BIT_OR", "bit_or", "whole number", "its type", _BITS),
    AggregateEntry("BIT_XOR", "bit_xor", "whole number", "its type", _BITS),
    AggregateEntry("VAR_POP", "var_pop", "number", "DOUBLE", "a number of rows, and the exact sums of x and x²"),
    AggregateEntry("VARIANCE VAR_SAMP", "var_samp", "number", "DOUBLE",
                   "a number of rows, and the exact sums of x and x²", "NULL of one row"),
    AggregateEntry("STDDEV_POP", "stddev_pop", "number", "DOUBLE", "a number of rows, and the exact sums of x and x²"),
    AggregateEntry("STDDEV STDDEV_SAMP STD", "stddev_samp", "number", "DOUBLE",
                   "a number of rows, and the exact sums of x and x²", "NULL of one row"),
    AggregateEntry("SKEWNESS", "skewness", "number", "DOUBLE", "a number of rows, and the exact sums of x to x³"),
    AggregateEntry("KURTOSIS", "kurtosis", "number", "DOUBLE", "a number of rows, and the exact sums of x to x⁴"),
    AggregateEntry("COVAR_POP", "covar_pop", "y, x", "DOUBLE", "a number of rows, and the exact sums of y, x and xy",
                   "", 2, 2),
    AggregateEntry("COVAR_SAMP", "covar_samp", "y, x", "DOUBLE", "a number of rows, and the exact sums of y, x and xy",
                   "NULL of one row", 2, 2),
    AggregateEntry("CORR", "corr", "y, x", "DOUBLE", _PAIRS, "NULL where one of them is the same in all rows", 2, 2),
    AggregateEntry("REGR_SLOPE", "regr_slope", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_INTERCEPT", "regr_intercept", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_R2", "regr_r2", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SXX", "regr_sxx", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SYY", "regr_syy", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SXY", "regr_sxy", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_COUNT", "count", "y, x", "BIGINT", "a number of rows", "", 2, 2),
    AggregateEntry("REGR_AVGX REGR_AVGY", "avg", "y, x", "DOUBLE or a decimal", "a number of rows and an exact sum", "",
                   2, 2),
    AggregateEntry("COLLECT_LIST ARRAY_AGG", "collect_list", "value", "an ARRAY of them", _ALL,
                   f"NULLs are left out. {_LEFT_OPEN}; with ORDER BY behind the value by that"),
    AggregateEntry("COLLECT_SET", "collect_set", "value", "an ARRAY of them", _ALL, "The values ascend"),
    AggregateEntry("LISTAGG STRING_AGG", "listagg", "text [, 'separator']", "STRING", _ALL,
                   f"{_LEFT_OPEN}; with WITHIN GROUP (ORDER BY …) by that", 1, 2),
    AggregateEntry("PERCENTILE", "percentile_cont", "number, p", "DOUBLE, or an ARRAY of them", _ALL,
                   "p is a number from 0 to 1 or an ARRAY of such, written out", 2, 2),
    AggregateEntry("MEDIAN", "percentile_cont", "number", "DOUBLE", _ALL),
    AggregateEntry("PERCENTILE_CONT", "percentile_cont", "p", "DOUBLE", _ALL, "With WITHIN GROUP (ORDER BY number)"),
    AggregateEntry("PERCENTILE_DISC", "percentile_disc", "p", "DOUBLE", _ALL, "With WITHIN GROUP (ORDER BY number)"),
    AggregateEntry("PERCENTILE_APPROX APPROX_PERCENTILE", "percentile_disc", "value, p [, accuracy]", "its type, or an "
                   "ARRAY of it", _ALL, "The exact percentile: a sketch cannot take a row back", 2, 3),
    AggregateEntry("MODE", "mode", "value", "its type", _ALL, "Of values that are there as often, the least; also "
                   "MODE() WITHIN GROUP (ORDER BY value), where DESC takes the greatest", 0, 2),
)  # fmt: skip

AGGREGATES: Mapping[str, AggregateEntry] = {name: entry for entry in TABLE for name in entry.names.split()}
"""The function for each name."""

REFUSED_AGGREGATES: Mapping[str, str] = {
    "GROUP_CONCAT": "write LISTAGG(x, ',')",
    **dict.fromkeys(
        ("HLL_SKETCH_AGG", "HLL_UNION_AGG", "BITMAP_CONSTRUCT_AGG", "COUNT_MIN_SKETCH", "APPROX_TOP_K"),
        "its sketch cannot take a row back",
    ),
    "HISTOGRAM_NUMERIC": "its bins cannot take a row back: group by the bin and count",
}
