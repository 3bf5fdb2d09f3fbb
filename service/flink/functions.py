"""Flink's functions that Spark calls otherwise, or that say something else there under the same name.

`SPELLINGS` is the table: a function by its name and the number of its arguments, and what stands for it in Spark's SQL.
Functions that are not in it are called the same and mean the same, or are refused when the job is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

SPELLINGS: Mapping[tuple[str, int], str] = {
    # Text. A part that is not there is NULL in Flink and empty in Spark.
    ("SPLIT_INDEX", 3): (
        "IF(LENGTH({0}) - LENGTH(REPLACE({0}, {1}, '')) >= {2} * LENGTH({1}), SPLIT_PART({0}, {1}, {2} + 1), NULL)"
    ),
    ("SPLIT_INDEX of any place", 3): (
        "IF({2} >= 0 AND LENGTH({0}) - LENGTH(REPLACE({0}, {1}, '')) >= {2} * LENGTH({1}), "
        "SPLIT_PART({0}, {1}, {2} + 1), NULL)"
    ),
    ("REGEXP_EXTRACT", 2): "IF(REGEXP_LIKE({0}, {1}), REGEXP_EXTRACT({0}, {1}, 0), NULL)",
    ("REGEXP_EXTRACT", 3): "IF(REGEXP_LIKE({0}, {1}), REGEXP_EXTRACT({0}, {1}, {2}), NULL)",
    ("REGEXP_INSTR", 2): "INSTR({0}, REGEXP_SUBSTR({0}, {1}))",
    ("LTRIM", 2): "LTRIM({1}, {0})",
    ("RTRIM", 2): "RTRIM({1}, {0})",
    ("TO_BASE64", 1): "BASE64({0})",
    ("FROM_BASE64", 1): "DECODE(UNBASE64({0}), 'UTF-8')",
    ("SHA224", 1): "SHA2({0}, 224)",
    ("SHA256", 1): "SHA2({0}, 256)",
    ("SHA384", 1): "SHA2({0}, 384)",
    ("SHA512", 1): "SHA2({0}, 512)",
    ("IS_DIGIT", 1): "COALESCE({0} RLIKE '^[0-9]+$', FALSE)",
    ("IS_ALPHA", 1): "COALESCE({0} RLIKE '^[A-Za-z]+$', FALSE)",
    ("IS_DECIMAL", 1): "COALESCE({0} RLIKE '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)$', FALSE)",
    ("JSON_VALUE", 2): "GET_JSON_OBJECT({0}, {1})",
    ("JSON_QUERY", 2): "GET_JSON_OBJECT({0}, {1})",
    ("JSON_EXISTS", 2): "(GET_JSON_OBJECT({0}, {1}) IS NOT NULL)",
    # Times. What is no time is NULL in Flink and stops the query in Spark.
    ("TO_TIMESTAMP", 1): "TRY_CAST({0} AS TIMESTAMP_NTZ)",
    ("TO_TIMESTAMP", 2): "CAST(TRY_TO_TIMESTAMP({0}, {1}) AS TIMESTAMP_NTZ)",
    ("TO_TIMESTAMP_LTZ", 1): "TIMESTAMP_MILLIS({0})",
    ("TO_TIMESTAMP_LTZ of seconds", 2): "TIMESTAMP_SECONDS({0})",
    ("TO_TIMESTAMP_LTZ of milliseconds", 2): "TIMESTAMP_MILLIS({0})",
    ("TO_TIMESTAMP_LTZ of text", 2): "TRY_TO_TIMESTAMP({0}, {1})",
    ("TO_DATE", 1): "TRY_TO_DATE({0})",
    ("TO_DATE", 2): "TRY_TO_DATE({0}, {1})",
    ("UNIX_TIMESTAMP", 1): "UNIX_TIMESTAMP({0}, 'yyyy-MM-dd HH:mm:ss')",
    ("CONVERT_TZ", 3): ("DATE_FORMAT(CONVERT_TIMEZONE({1}, {2}, CAST({0} AS TIMESTAMP_NTZ)), 'yyyy-MM-dd HH:mm:ss')"),
    ("WEEK", 1): "WEEKOFYEAR({0})",
    ("FLOOR TO", 2): "DATE_TRUNC('{1}', {0})",
    ("EXTRACT SECOND", 1): "SECOND({0})",
    # Values. A separator that is left out is a comma in Flink, and nothing in Spark.
    ("LISTAGG", 1): "LISTAGG({0}, ',')",
    ("STR_TO_MAP", 1): "STR_TO_MAP({0}, ',', '=')",
    ("STR_TO_MAP", 2): "STR_TO_MAP({0}, {1}, '=')",
    ("ARRAY_SORT", 1): "SORT_ARRAY({0})",
    ("ARRAY_SORT", 2): "SORT_ARRAY({0}, {1})",
    ("ARRAY_REVERSE", 1): "REVERSE({0})",
    ("ARRAY_CONCAT", 2): "CONCAT({0}, {1})",
    ("ELEMENT", 1): "ELEMENT_AT({0}, 1)",
    ("TRUNCATE", 1): "CAST({0} AS BIGINT)",
}


def spelled(name: str, arguments: int) -> str | None:
    """What stands for a call, with `{0}` for its first argument; None where it is called the same."""
    listed = [f"{{{number}}}" for number in range(arguments)]
    if name in ("GREATEST", "LEAST"):
        # NULL in Flink where an argument is; Spark leaves NULLs out.
        nulls = " OR ".join(f"{each} IS NULL" for each in listed)
        return f"IF({nulls}, NULL, {name}({', '.join(listed)}))"
    if name == "ROW":
        return f"STRUCT({', '.join(listed)})"
    return SPELLINGS.get((name, arguments))


WITHOUT: Mapping[str, str] = {
    "TYPEOF": "types are known beforehand: write the name out",
    "CEIL TO": "CEIL(… TO unit) is not here: write DATE_TRUNC('unit', …) + INTERVAL '1' unit where that is later",
    "COLLECT": "COLLECT makes a MULTISET, which has no place in a topic: GROUP BY the value as well, and COUNT",
    "JSON_STRING": "its text differs in detail: make the JSON where the result is read",
    "JSON_OBJECT": "its text differs in detail: write the columns, and a sink with `format: json`",
    "JSON_ARRAY": "its text differs in detail: write the columns, and a sink with `format: json`",
    "JSON_OBJECTAGG": "it makes one text of a group: write the rows, and a sink with `format: json`",
    "JSON_ARRAYAGG": "it makes one text of a group: write the rows, and a sink with `format: json`",
    "CURRENT_WATERMARK": "the watermark is no value here: compare with a time that is a column",
    "OVERLAPS": "write a.start < b.end AND b.start < a.end",
    "GROUP_ID": "write GROUPING_ID()",
    "SOURCE_WATERMARK": "a watermark is said of a column: `watermark: {column: ts, delay: 5s}`",
}
"""Functions for which there is nothing, and what to do instead."""
