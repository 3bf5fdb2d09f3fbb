"""Tables of Avro types: the SQL name of each type and logical type, and the base types of numeric logical types."""

from __future__ import annotations

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
_UNITS = ("millis", "micros", "nanos")

LOGICAL_BASE = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    **{f"{instant}-{unit}": "long" for instant in ("timestamp", "local-timestamp") for unit in _UNITS},
}

CONNECT_LOGICAL = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
"""The logical types that Connect expresses by the attribute `connect.name` alone."""
