"""Functions of Spark, Flink and others that are refused, with the reason and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

_CLOCK = "it would give another value when the row is taken back: use a time that is a column of the row"
_CHANCE = "it would give another value when the row is taken back: make it where the row is made"
_ENVIRONMENT = "it tells about the session, not about the row"

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURDATE", "CURRENT_TIME", "LOCALTIME",
         "UNIX_TIMESTAMP", "TO_UNIX_TIMESTAMP", "CURRENT_ROW_TIMESTAMP"), _CLOCK),
    "PROCTIME": "the time of processing is another when the row is taken back: it stands only behind ORDER BY of "
                "ROW_NUMBER, for the order of arrival",
    **dict.fromkeys(("RAND", "RANDOM", "RANDN", "UUID", "RANDSTR", "UNIFORM", "RAND_INTEGER",
                     "MONOTONICALLY_INCREASING_ID"), _CHANCE),
    **dict.fromkeys(
        ("CURRENT_USER", "USER", "SESSION_USER", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_CATALOG", "VERSION",
         "CURRENT_TIMEZONE", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
         "INPUT_FILE_BLOCK_LENGTH"), _ENVIRONMENT),
    "SENTENCES": "where a sentence ends is a matter of Java's tables: write SPLIT",
    "FROM_CSV": "write SPLIT or SPLIT_PART, and CAST",
    "SHUFFLE": _CHANCE,
    **dict.fromkeys(("EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE", "INLINE_OUTER", "STACK",
                     "JSON_TUPLE", "UNNEST"), "it makes several rows of one"),
    "MURMUR_HASH": "write HASH",
    **dict.fromkeys(("TUMBLE", "HOP", "SESSION", "CUMULATE", "WINDOW", "SESSION_WINDOW", "WINDOW_TIME"),
                    "there are no windows of time: group by DATE_TRUNC(…) of a column"),
    **dict.fromkeys(("MAKE_INTERVAL", "MAKE_DT_INTERVAL", "MAKE_YM_INTERVAL"),
                    "write the INTERVAL out, or TIMESTAMPADD(unit, number, time)"),
    **dict.fromkeys(("SCHEMA_OF_JSON", "SCHEMA_OF_CSV"), "the schema is known when the query is planned: write it out"),
    **dict.fromkeys(("AES_ENCRYPT", "AES_DECRYPT", "TRY_AES_DECRYPT"), "keys do not belong into SQL"),
    **dict.fromkeys(("JAVA_METHOD", "REFLECT", "TRY_REFLECT"), "there is no JVM where expressions run"),
    **dict.fromkeys(("TO_CHAR", "TO_VARCHAR", "TO_NUMBER", "TRY_TO_NUMBER"),
                    "its formats are Java's: write CAST, ROUND, FORMAT_NUMBER, FORMAT_STRING, DATE_FORMAT or HEX"),
    "TO_CSV": "write CONCAT_WS",
    "ASSERT_TRUE": "write a WHERE, or check the data where it is made",
    "RAISE_ERROR": "a query does not stop by itself: write a WHERE",
    # Flink's and other systems' names.
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
    "TIMESTAMP_DIFF": "write TIMESTAMPDIFF(unit, from, to)",
}  # fmt: skip
