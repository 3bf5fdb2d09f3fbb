"""Functions of Spark, Flink and others that are refused, with the reason and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

_CLOCK = "it would give another value when the row is taken back: use a time that is a column of the row"
_CHANCE = "it would give another value when the row is taken back: make it where the row is made"
_ENVIRONMENT = "it tells about the session, not about the row"
_LAMBDA = "functions with -> are not supported"
_MAKES = "an expression gives a number, a text, a time, a condition or bytes, no new {}"
_HASH = "its algorithm is Spark's own: write MD5, SHA2 or CRC32"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURDATE", "CURRENT_TIME", "LOCALTIME",
         "UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP", "CURRENT_ROW_TIMESTAMP"), _CLOCK),
    "PROCTIME": "the time of processing is another when the row is taken back: it stands only behind ORDER BY of "
                "ROW_NUMBER, for the order of arrival",
    **dict.fromkeys(("RAND", "RANDOM", "RANDN", "UUID", "RANDSTR", "UNIFORM", "SHUFFLE", "RAND_INTEGER",
                     "MONOTONICALLY_INCREASING_ID"), _CHANCE),
    **dict.fromkeys(
        ("CURRENT_USER", "USER", "SESSION_USER", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_CATALOG", "VERSION",
         "CURRENT_TIMEZONE", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
         "INPUT_FILE_BLOCK_LENGTH"), _ENVIRONMENT),
    **dict.fromkeys(("TRANSFORM", "FILTER", "AGGREGATE", "REDUCE", "EXISTS", "FORALL", "ZIP_WITH", "MAP_FILTER",
                     "TRANSFORM_KEYS", "TRANSFORM_VALUES", "MAP_ZIP_WITH", "ARRAY_SORT"), _LAMBDA),
    **dict.fromkeys(("ARRAY", "SEQUENCE", "ARRAY_REPEAT", "ARRAY_UNION", "ARRAY_DISTINCT", "ARRAY_EXCEPT",
                     "ARRAY_INTERSECT", "FLATTEN", "SLICE", "SORT_ARRAY", "ARRAYS_ZIP", "ARRAY_APPEND",
                     "ARRAY_PREPEND", "ARRAY_REMOVE", "ARRAY_COMPACT", "ARRAY_INSERT", "MAP_KEYS", "MAP_VALUES",
                     "MAP_ENTRIES", "REGEXP_EXTRACT_ALL", "SENTENCES"), _MAKES.format("ARRAY")),
    "SPLIT": "an expression gives no new ARRAY: write SPLIT_PART(text, delimiter, number)",
    **dict.fromkeys(("MAP", "MAP_FROM_ARRAYS", "MAP_FROM_ENTRIES", "STR_TO_MAP", "MAP_CONCAT"), _MAKES.format("MAP")),
    **dict.fromkeys(("STRUCT", "NAMED_STRUCT", "ROW", "FROM_JSON", "FROM_CSV"), _MAKES.format("STRUCT")),
    **dict.fromkeys(("EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "INLINE_OUTER", "STACK",
                     "JSON_TUPLE", "UNNEST"), "it makes several rows of one"),
    **dict.fromkeys(("HASH", "XXHASH64", "MURMUR_HASH"), _HASH),
    **dict.fromkeys(("TUMBLE", "HOP", "SESSION", "CUMULATE", "WINDOW", "SESSION_WINDOW", "WINDOW_TIME"),
                    "there are no windows of time: group by DATE_TRUNC(…) of a column"),
    **dict.fromkeys(("MAKE_INTERVAL", "MAKE_DT_INTERVAL", "MAKE_YM_INTERVAL"),
                    "write the INTERVAL out, or TIMESTAMPADD(unit, number, time)"),
    **dict.fromkeys(("TO_JSON", "TO_CSV", "SCHEMA_OF_JSON", "SCHEMA_OF_CSV"), "its text differs in detail"),
    **dict.fromkeys(("AES_ENCRYPT", "AES_DECRYPT", "TRY_AES_DECRYPT"), "keys do not belong into SQL"),
    **dict.fromkeys(("JAVA_METHOD", "REFLECT", "TRY_REFLECT"), "there is no JVM where expressions run"),
    **dict.fromkeys(("TO_CHAR", "TO_VARCHAR", "TO_NUMBER", "TRY_TO_NUMBER", "FORMAT_STRING", "PRINTF", "TO_BINARY",
                     "TRY_TO_BINARY"), "its formats are Java's: write CAST, ROUND and text functions"),
    "REGEXP_INSTR": "write INSTR(text, REGEXP_SUBSTR(text, pattern))",
    "ASSERT_TRUE": "write a WHERE, or check the data where it is made",
    "RAISE_ERROR": "a query does not stop by itself: write a WHERE",
    # Flink's and other systems' names.
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
    **dict.fromkeys(("PARSE_JSON", "TRY_PARSE_JSON"), "JSON stays text: write GET_JSON_OBJECT(text, path)"),
    "JSON_EXISTS": "write GET_JSON_OBJECT(text, path) IS NOT NULL",
    **dict.fromkeys(("JSON_QUOTE", "JSON_UNQUOTE", "JSON_STRING", "JSON_OBJECT", "JSON_ARRAY"),
                    "its text differs in detail"),
    "PARSE_URL": "write REGEXP_EXTRACT(url, pattern, group)",
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
    "TYPEOF": "types are known beforehand: write the name out",
    "COLLECT": "group by the value as well, and write COUNT(*)",
    "CURRENT_WATERMARK": "there are no watermarks: compare with a time that is a column of the row",
    "TIMESTAMP_DIFF": "write TIMESTAMPDIFF(unit, from, to)",
}  # fmt: skip
