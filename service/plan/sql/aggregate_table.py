"""Tables of the aggregate functions that SQL can call, and of those that are refused.

The function reference is generated from the first table. All results are the same as in Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowkind.operators.aggregate.function import AggregateFunction


@dataclass(frozen=True)
class AggregateEntry:
    """An aggregate function: its SQL names, its arguments, and its description in the function reference.

    The number of arguments must be from `fewest` to `most`.
    """

    names: str
    function: AggregateFunction
    takes: str
    gives: str
    keeps: str
    note: str = ""
    fewest: int = 1
    most: int = 1


_VALUE = "one value; if rows may be retracted, all distinct values"
_ROWS = "one value; if rows may be retracted, all values and the order in which they arrived"
_ALL = "all distinct values, each with its row count; every change reads its group's values"
_BITS = "a row count and, for each bit, the number of rows in which it is set"
_PAIRS = "row counts, and the exact sums of y, x, xy, y² and x²"
_STAYS = "A row that is retracted and inserted again within one batch keeps its place"
_LEFT_OPEN = "Without ORDER BY, the values are in ascending order, not in order of arrival"

TABLE: tuple[AggregateEntry, ...] = (
    AggregateEntry(
        "COUNT", "count", "*, or values", "BIGINT", "a row count",
        "With several values, counts the rows in which none of them is NULL",
        0, 1000,
    ),
    AggregateEntry("COUNT_IF", "count", "condition", "BIGINT", "a row count"),
    AggregateEntry(
        "APPROX_COUNT_DISTINCT", "count", "value [, error]", "BIGINT", _ALL.partition(";")[0],
        "Exact, like COUNT(DISTINCT …), because a sketch cannot process retractions", 1, 2,
    ),
    AggregateEntry("SUM TRY_SUM", "sum", "number", "BIGINT, DOUBLE or a decimal", "a row count and an exact sum",
                   "If a sum does not fit its type, the row fails, as in any expression; TRY_SUM returns NULL "
                       "instead"),
    AggregateEntry("AVG MEAN TRY_AVG", "avg", "number", "DOUBLE or a decimal", "a row count and an exact sum"),
    AggregateEntry("MIN", "min", "value", "the argument's type", _VALUE),
    AggregateEntry("MAX", "max", "value", "the argument's type", _VALUE,
                   "Also keeps only one value if rows are updated, but updates never decrease the argument"),
    AggregateEntry("ANY_VALUE", "any_value", "value", "the argument's type", _VALUE,
                   "Returns the least value; Spark may return NULL"),
    AggregateEntry(
        "MAX_BY", "max_by", "value, order", "the value's type", _VALUE, "Rows whose order is NULL are "
        "ignored. If several rows have the greatest order, returns the value that is last in byte order", 2, 2,
    ),
    AggregateEntry(
        "MIN_BY", "min_by", "value, order", "the value's type", _VALUE, "Rows whose order is NULL are "
        "ignored. If several rows have the least order, returns the value that is first in byte order", 2, 2,
    ),
    AggregateEntry(
        "FIRST FIRST_VALUE", "first", "value [, ignore nulls]", "the argument's type", _ROWS,
        f"Returns the value of the current row that arrived first; IGNORE NULLS skips rows whose value is NULL. "
        f"{_STAYS}", 1, 2,
    ),
    AggregateEntry(
        "LAST LAST_VALUE", "last", "value [, ignore nulls]", "the argument's type", _ROWS,
        f"Returns the value of the current row that arrived last; IGNORE NULLS skips rows whose value is NULL. "
        f"{_STAYS}", 1, 2,
    ),
    AggregateEntry("BOOL_AND EVERY", "bool_and", "condition", "BOOLEAN", "the counts of true and of false"),
    AggregateEntry("BOOL_OR SOME ANY", "bool_or", "condition", "BOOLEAN", "the counts of true and of false"),
    AggregateEntry("BIT_AND", "bit_and", "integer", "the argument's type", _BITS),
    AggregateEntry("BIT_OR", "bit_or", "integer", "the argument's type", _BITS),
    AggregateEntry("BIT_XOR", "bit_xor", "integer", "the argument's type", _BITS),
    AggregateEntry("VAR_POP", "var_pop", "number", "DOUBLE", "a row count, and the exact sums of x and x²"),
    AggregateEntry("VARIANCE VAR_SAMP", "var_samp", "number", "DOUBLE",
                   "a row count, and the exact sums of x and x²", "NULL for a single row"),
    AggregateEntry("STDDEV_POP", "stddev_pop", "number", "DOUBLE", "a row count, and the exact sums of x and x²"),
    AggregateEntry("STDDEV STDDEV_SAMP STD", "stddev_samp", "number", "DOUBLE",
                   "a row count, and the exact sums of x and x²", "NULL for a single row"),
    AggregateEntry("SKEWNESS", "skewness", "number", "DOUBLE", "a row count, and the exact sums of x to x³"),
    AggregateEntry("KURTOSIS", "kurtosis", "number", "DOUBLE", "a row count, and the exact sums of x to x⁴"),
    AggregateEntry("COVAR_POP", "covar_pop", "y, x", "DOUBLE", "a row count, and the exact sums of y, x and xy",
                   "", 2, 2),
    AggregateEntry("COVAR_SAMP", "covar_samp", "y, x", "DOUBLE", "a row count, and the exact sums of y, x and xy",
                   "NULL for a single row", 2, 2),
    AggregateEntry("CORR", "corr", "y, x", "DOUBLE", _PAIRS, "NULL if y or x is the same in all rows", 2, 2),
    AggregateEntry("REGR_SLOPE", "regr_slope", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_INTERCEPT", "regr_intercept", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_R2", "regr_r2", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SXX", "regr_sxx", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SYY", "regr_syy", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_SXY", "regr_sxy", "y, x", "DOUBLE", _PAIRS, "", 2, 2),
    AggregateEntry("REGR_COUNT", "count", "y, x", "BIGINT", "a row count", "", 2, 2),
    AggregateEntry("REGR_AVGX REGR_AVGY", "avg", "y, x", "DOUBLE or a decimal", "a row count and an exact sum", "",
                   2, 2),
    AggregateEntry("COLLECT_LIST ARRAY_AGG", "collect_list", "value", "an ARRAY of them", _ALL,
                   f"NULLs are skipped. {_LEFT_OPEN}; ORDER BY after the value sets another order"),
    AggregateEntry("COLLECT_SET", "collect_set", "value", "an ARRAY of them", _ALL,
                   "The values are in ascending order"),
    AggregateEntry("LISTAGG STRING_AGG", "listagg", "text [, 'separator']", "STRING", _ALL,
                   f"{_LEFT_OPEN}; WITHIN GROUP (ORDER BY …) sets another order", 1, 2),
    AggregateEntry("PERCENTILE", "percentile_cont", "number, p", "DOUBLE, or an ARRAY of them", _ALL,
                   "p must be a literal number from 0 to 1, or a literal ARRAY of such numbers", 2, 2),
    AggregateEntry("MEDIAN", "percentile_cont", "number", "DOUBLE", _ALL),
    AggregateEntry("PERCENTILE_CONT", "percentile_cont", "p", "DOUBLE", _ALL,
                   "Written with WITHIN GROUP (ORDER BY number)"),
    AggregateEntry("PERCENTILE_DISC", "percentile_disc", "p", "DOUBLE", _ALL,
                   "Written with WITHIN GROUP (ORDER BY number)"),
    AggregateEntry("PERCENTILE_APPROX APPROX_PERCENTILE", "percentile_disc", "value, p [, accuracy]",
                   "the argument's type, or an ARRAY of it", _ALL,
                   "The exact percentile, because a sketch cannot process retractions", 2, 3),
    AggregateEntry("MODE", "mode", "value", "the argument's type", _ALL,
                   "If several values are equally frequent, returns the least. MODE() WITHIN GROUP (ORDER BY value) "
                   "is the same; with DESC, it returns the greatest", 0, 2),
)  # fmt: skip

AGGREGATES: Mapping[str, AggregateEntry] = {name: entry for entry in TABLE for name in entry.names.split()}
"""Maps each SQL name to its entry."""

REFUSED_AGGREGATES: Mapping[str, str] = {
    "GROUP_CONCAT": "write LISTAGG(x, ',')",
    **dict.fromkeys(
        ("HLL_SKETCH_AGG", "HLL_UNION_AGG", "BITMAP_CONSTRUCT_AGG", "COUNT_MIN_SKETCH", "APPROX_TOP_K"),
        "its sketch cannot process retractions",
    ),
    "HISTOGRAM_NUMERIC": "its bins cannot process retractions; compute each row's bin, group by it and count",
}
