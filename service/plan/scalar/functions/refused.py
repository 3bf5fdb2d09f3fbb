"""Functions of Spark, Flink and other systems that are refused, each with the reason or the replacement."""

from __future__ import annotations

from collections.abc import Mapping

_CLOCK = "it would return a different value when the row is retracted; use a time that is a column of the row"
_CHANCE = "it would return a different value when the row is retracted; compute it in the producer"
_ENVIRONMENT = "it depends on the session, not on the row"
_SKETCH = "sketches have the format of a JVM library; write the exact aggregate, or APPROX_COUNT_DISTINCT"
_FOREIGN = "a topic's format is declared by its schema; other formats cannot be read from a column"
_XML = "XML must be parsed in the producer; send the fields, or JSON"
_VARIANT = "there is no type VARIANT; read JSON with GET_JSON_OBJECT or FROM_JSON, and write it with TO_JSON"
_PLACE = "there are no geometry types"
_JVM = "there is no JVM where expressions are evaluated"
_KEYS = "secret keys do not belong in SQL"
_STOP = "a query cannot stop itself; filter in WHERE, or check the data in the producer"
_ROWS = "it returns several rows for one row"
_TIME = "the type TIME is turned off in Spark; send a TIMESTAMP, or microseconds"
_SCHEMA = (
    "it depends on the plan, not on the row; `rowkind explain` shows types, and FROM_JSON takes a schema as a literal"
)
_NANOS = "nanoseconds are not supported; write UNIX_MICROS or TIMESTAMP_MICROS"
_VECTOR = "its last digits depend on the order in which Spark adds FLOATs; write AGGREGATE, or ZIP_WITH"

SENSELESS = frozenset(
    (
        _CLOCK,
        _CHANCE,
        _ENVIRONMENT,
        _SKETCH,
        _FOREIGN,
        _XML,
        _VARIANT,
        _PLACE,
        _JVM,
        _KEYS,
        _STOP,
        _ROWS,
        _NANOS,
        _TIME,
        _SCHEMA,
    )
)
"""Reasons that apply to functions that make no sense in a continuously updated result, or that need the JVM."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURDATE", "CURRENT_TIME", "LOCALTIME",
         "UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP", "CURRENT_ROW_TIMESTAMP"), _CLOCK),
    "PROCTIME": "it is allowed only as a column of the SELECT list; select it in a derived table or a view",
    **dict.fromkeys(("RAND", "RANDOM", "RANDN", "UUID", "RANDSTR", "UNIFORM", "RAND_INTEGER",
                     "MONOTONICALLY_INCREASING_ID"), _CHANCE),
    **dict.fromkeys(
        ("CURRENT_USER", "USER", "SESSION_USER", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_CATALOG", "VERSION",
         "CURRENT_TIMEZONE", "CURRENT_PATH", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
         "INPUT_FILE_BLOCK_LENGTH"), _ENVIRONMENT),
    "SENTENCES": "the end of a sentence depends on Java's tables; write SPLIT",
    "FROM_CSV": "write SPLIT or SPLIT_PART, and CAST",
    "SHUFFLE": _CHANCE,
    **dict.fromkeys(("EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "INLINE_OUTER", "UNNEST"),
                    _ROWS),
    "STACK": "write one SELECT for each row, and UNION ALL between them",
    "JSON_TUPLE": "write GET_JSON_OBJECT for each column",
    **dict.fromkeys(("VARIANT_EXPLODE", "VARIANT_EXPLODE_OUTER"), _VARIANT),
    "MURMUR_HASH": "write HASH",
    **dict.fromkeys(("TUMBLE", "HOP", "SESSION", "CUMULATE", "WINDOW", "SESSION_WINDOW", "WINDOW_TIME"),
                    "time windows are allowed in GROUP BY, in the SELECT list, and as table functions in FROM; "
                        "compute them in a derived table"),
    **dict.fromkeys(("MAKE_INTERVAL", "MAKE_DT_INTERVAL", "MAKE_YM_INTERVAL", "TRY_MAKE_INTERVAL"),
                    "write an INTERVAL literal, or TIMESTAMPADD(unit, number, time)"),
    **dict.fromkeys(("SCHEMA_OF_JSON", "SCHEMA_OF_CSV", "TYPEOF"), _SCHEMA),
    **dict.fromkeys(("AES_ENCRYPT", "AES_DECRYPT", "TRY_AES_DECRYPT", "HMAC"), _KEYS),
    **dict.fromkeys(("JAVA_METHOD", "REFLECT", "TRY_REFLECT"), _JVM),
    **dict.fromkeys(("FROM_AVRO", "TO_AVRO", "SCHEMA_OF_AVRO", "FROM_PROTOBUF", "TO_PROTOBUF"), _FOREIGN),
    **dict.fromkeys(
        ("FROM_XML", "TO_XML", "SCHEMA_OF_XML", "XPATH", *(f"XPATH_{kind}" for kind in (
            "BOOLEAN", "DOUBLE", "FLOAT", "INT", "LONG", "NUMBER", "SHORT", "STRING"))), _XML),
    **dict.fromkeys(
        ("IS_VALID_VARIANT", "IS_VARIANT_NULL", "PARSE_JSON", "TRY_PARSE_JSON", "SCHEMA_OF_VARIANT",
         "TO_VARIANT_OBJECT", "TRY_VARIANT_ARRAY_APPEND", "TRY_VARIANT_GET", "TRY_VARIANT_INSERT", "TRY_VARIANT_SET",
         "VARIANT_ARRAY_APPEND", "VARIANT_DELETE", "VARIANT_GET", "VARIANT_INSERT", "VARIANT_SET",
         "VARIANT_STRIP_NULLS"), _VARIANT),
    **dict.fromkeys(("ST_ASBINARY", "ST_GEOGFROMWKB", "ST_GEOMFROMWKB", "ST_SETSRID", "ST_SRID"), _PLACE),
    **dict.fromkeys(
        ("APPROX_TOP_K_ESTIMATE", "HLL_SKETCH_ESTIMATE", "HLL_UNION", "THETA_DIFFERENCE", "THETA_INTERSECTION",
         "THETA_SKETCH_ESTIMATE", "THETA_UNION", *(
            f"KLL_SKETCH_{what}_{kind}" for kind in ("BIGINT", "DOUBLE", "FLOAT")
            for what in ("GET_N", "GET_QUANTILE", "GET_RANK", "MERGE", "TO_STRING")), *(
            f"TUPLE_{what}_{kind}" for kind in ("DOUBLE", "INTEGER")
            for what in ("DIFFERENCE", "DIFFERENCE_THETA", "INTERSECTION", "INTERSECTION_THETA", "SKETCH_ESTIMATE",
                         "SKETCH_SUMMARY", "SKETCH_THETA", "UNION", "UNION_THETA"))), _SKETCH),
    **dict.fromkeys(("MAKE_TIME", "TIME", "TIME_DIFF", "TIME_FROM_MICROS", "TIME_FROM_MILLIS", "TIME_FROM_SECONDS",
                     "TIME_TO_MICROS", "TIME_TO_MILLIS", "TIME_TO_SECONDS", "TIME_TRUNC", "TO_TIME", "TRY_TO_TIME"),
                    _TIME),
    **dict.fromkeys(("UNIX_NANOS", "TIMESTAMP_NANOS"), _NANOS),
    **dict.fromkeys(("VECTOR_COSINE_SIMILARITY", "VECTOR_INNER_PRODUCT", "VECTOR_L2_DISTANCE", "VECTOR_NORM",
                     "VECTOR_NORMALIZE"), _VECTOR),
    "COLLATE": "text is always compared by its bytes (collation UTF8_BINARY)",
    ">>>": "write SHIFTRIGHTUNSIGNED",
    "TIME_BUCKET": "write DATE_TRUNC(unit, time), or TIMESTAMP_SECONDS(UNIX_SECONDS(time) DIV 900 * 900)",
    "TO_CSV": "write CONCAT_WS",
    **dict.fromkeys(("ASSERT_TRUE", "RAISE_ERROR"), _STOP),
    # Functions of Flink and other systems.
    "ROW": "write STRUCT(a, b AS name), or NAMED_STRUCT",
    "SPLIT_INDEX": "write SPLIT_PART(text, delimiter, number), which counts from 1",
    "TO_BASE64": "write BASE64",
    "FROM_BASE64": "write UNBASE64",
    "SHA256": "write SHA2(value, 256)",
    "SHA224": "write SHA2(value, 224)",
    "SHA384": "write SHA2(value, 384)",
    "SHA512": "write SHA2(value, 512)",
    "TRUNCATE": "write CAST or ROUND",
    "JSON_VALUE": "write GET_JSON_OBJECT(text, path)",
    "JSON_QUERY": "write GET_JSON_OBJECT(text, path)",
    "IIF": "write IF(condition, value, other)",
    "CHARINDEX": "write INSTR(text, part)",
    "STRPOS": "write INSTR(text, part)",
    "JSON_EXISTS": "write GET_JSON_OBJECT(text, path) IS NOT NULL",
    **dict.fromkeys(("JSON_QUOTE", "JSON_UNQUOTE", "JSON_STRING", "JSON_OBJECT", "JSON_ARRAY"),
                    "the resulting text would differ in details"),
    "ARRAY_SLICE": "write SLICE(array, start, length)",
    "ARRAY_CONCAT": "write CONCAT(array, array)",
    "ARRAY_REVERSE": "write REVERSE(array)",
    "MAP_UNION": "write MAP_CONCAT(map, map)",
    "CONVERT_TZ": "write CONVERT_TIMEZONE(from, to, CAST(text AS TIMESTAMP_NTZ))",
    "WEEK": "write WEEKOFYEAR(date)",
    "IS_DIGIT": "write text RLIKE '^[0-9]+$'",
    "IS_ALPHA": "write text RLIKE '^[A-Za-z]+$'",
    "IS_DECIMAL": "write TRY_CAST(text AS DOUBLE) IS NOT NULL",
    "ELEMENT": "write ELEMENT_AT(array, 1)",
    "COLLECT": "write COLLECT_LIST(value), or group by the value as well and write COUNT(*)",
    "CURRENT_WATERMARK": "it would return a different value when the row is retracted; compare with a time column",
    "GENERATE_SERIES": "write SEQUENCE(from, to) for an array, and EXPLODE around it for rows",
    "STRING_TO_ARRAY": "write SPLIT(text, pattern)",
    "TIMESTAMP_DIFF": "write TIMESTAMPDIFF(unit, from, to)",
}  # fmt: skip
