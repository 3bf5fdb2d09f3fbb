"""What an Avro type or logical type is in Arrow and in SQL, and which base a logical type of one number has."""

from __future__ import annotations

import pyarrow as pa

ARROW: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "union": pa.binary(),
    "reference": pa.binary(),
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
SQL = {
    "null": "VOID",
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "fixed": "BINARY",
    "enum": "STRING",
    "union": "UNION",
    "reference": "RECURSIVE",
    "uuid": "STRING",
    "duration": "DURATION",
    "date": "DATE",
    "time-millis": "TIME(3)",
    "time-micros": "TIME(6)",
    "timestamp": "TIMESTAMP",
    "local-timestamp": "TIMESTAMP_NTZ",
}
LOGICAL_BASE = {
    "date": "int",
    "time-millis": "int",
    **{name: "long" for name in ARROW if name == "time-micros" or name.startswith(("timestamp-", "local-timestamp-"))},
}
