"""Flink functions whose name or meaning differs in Spark.

`SPELLINGS` maps a function's name and number of arguments to a template in Spark SQL. A function that is not listed has
the same name and meaning in Spark, or is refused when the job is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

SPELLINGS: Mapping[tuple[str, int], str] = {
    # Text. A missing part is NULL in Flink and empty in Spark.
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
    # Times. Text that is not a time is NULL in Flink and fails the query in Spark.
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
    # Values. The default separator is a comma in Flink, and empty in Spark.
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
    """Return the Spark SQL template for a call, with `{0}` for its first argument, or None if it needs no change."""
    listed = [f"{{{number}}}" for number in range(arguments)]
    if name in ("GREATEST", "LEAST"):
        # If an argument is NULL, the result is NULL in Flink. Spark ignores NULLs.
        nulls = " OR ".join(f"{each} IS NULL" for each in listed)
        return f"IF({nulls}, NULL, {name}({', '.join(listed)}))"
    if name == "ROW":
        return f"STRUCT({', '.join(listed)})"
    return SPELLINGS.get((name, arguments))


WITHOUT: Mapping[str, str] = {
    "TYPEOF": "types are known when the job is planned: write the type's name as a literal",
    "CEIL TO": "write DATE_TRUNC('unit', t) + INTERVAL '1' unit, or t itself if it is the start of a unit",
    "COLLECT": "a MULTISET cannot be written to a topic: add the value to GROUP BY, and use COUNT(*)",
    "JSON_STRING": "its text differs in details: build the JSON where the result is read",
    "JSON_OBJECT": "its text differs in details: select the columns, and use a sink with `format: json`",
    "JSON_ARRAY": "its text differs in details: select the columns, and use a sink with `format: json`",
    "JSON_OBJECTAGG": "it builds one text per group: select the rows, and use a sink with `format: json`",
    "JSON_ARRAYAGG": "it builds one text per group: select the rows, and use a sink with `format: json`",
    "CURRENT_WATERMARK": "the watermark is not available as a value: compare with a time column",
    "OVERLAPS": "write a.start < b.end AND b.start < a.end",
    "GROUP_ID": "write GROUPING_ID()",
    "SOURCE_WATERMARK": "declare the watermark for a column: `watermark: {column: ts, delay: 5s}`",
}
"""Functions without an equivalent, and what to do instead."""
