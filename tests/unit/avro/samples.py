"""Random Avro schemas, values and schema evolutions, and fastavro's reading and writing of them."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import random
import struct
from typing import Any

import fastavro
import pyarrow as pa

from rowkind.avro.schema import Record
from rowkind.avro.type import Type

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SCALARS: list[Any] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 5},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0},
]


class Samples:
    """A source of random schemas and values; equal seeds give equal samples."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def name(self, prefix: str) -> str:
        """Return a name that has not been used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def type(self, depth: int = 2) -> Any:
        """Return a schema nested at most `depth` deep; about half of the schemas are nullable."""
        base = self.base(depth)
        if isinstance(base, list) or base == "null":
            return base
        return self.random.choice([base, base, ["null", base], [base, "null"]])

    def base(self, depth: int) -> Any:
        """Return a schema that is not nullable."""
        kinds = (
            ["scalar"] * 8 + ["enum", "fixed", "decimal"] + ["array", "map", "record", "union", "null"] * (depth > 0)
        )
        match self.random.choice(kinds):
            case "scalar":
                return self.random.choice(SCALARS)
            case "enum" | "fixed" | "decimal" as kind:
                return self.named(kind)
            case "array":
                return {"type": "array", "items": self.type(depth - 1)}
            case "map":
                return {"type": "map", "values": self.type(depth - 1)}
            case "record":
                return self.record(self.random.randint(1, 3), depth - 1)
            case "union":
                return ["int", "string", "null", self.record(2, depth - 1)]
            case _:
                return "null"

    def named(self, kind: str) -> dict[str, Any]:
        """Return a named type other than a record."""
        match kind:
            case "enum":
                return {"type": "enum", "name": self.name("Enum"), "symbols": ["A", "B", "LONGER"]}
            case "fixed":
                return {"type": "fixed", "name": self.name("Fixed"), "size": self.random.choice([1, 4, 8, 16, 20])}
            case _:
                size, precision = self.random.choice([(4, 9), (8, 18), (9, 19), (16, 38), (20, 40), (32, 76)])
                name = self.name("Decimal")
                logical = {"logicalType": "decimal", "precision": precision, "scale": 2}
                return {"type": "fixed", "name": name, "size": size, **logical}

    def record(self, columns: int, depth: int = 2) -> dict[str, Any]:
        """Return a record with the given number of columns."""
        fields = [{"name": f"f{i}", "type": self.type(depth)} for i in range(columns)]
        return {"type": "record", "name": self.name("Record"), "fields": fields}

    def value(self, schema: Any) -> Any:
        """Return a random value in the form that fastavro takes."""
        if isinstance(schema, list):
            branch = self.random.choice(schema)
            value = self.value(branch)
            return (branch["name"], value) if len(schema) > 2 and isinstance(branch, dict) else value
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and "logicalType" in schema:
            return self.logical(schema)
        match kind:
            case "fixed":
                return self.random.randbytes(schema["size"])
            case "enum":
                return self.random.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(self.random.choice([0, 0, 1, 2, 5]))]
            case "map":
                return {f"k{i}": self.value(schema["values"]) for i in range(self.random.choice([0, 0, 1, 3]))}
            case "record":
                return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
            case _:
                return self.primitive(kind)

    def primitive(self, kind: str) -> Any:
        """Return a value of a primitive type."""
        match kind:
            case "boolean":
                return self.random.random() < 0.5
            case "int":
                return self.integer(31)
            case "long":
                return self.integer(63)
            case "float":
                return struct.unpack("<f", struct.pack("<f", self.real()))[0]
            case "double":
                return self.real()
            case "bytes":
                return self.random.randbytes(self.length())
            case "string":
                return "".join(self.random.choices("ab\x00é\U0001f600 z", k=self.length()))
            case _:
                return None

    def logical(self, schema: dict[str, Any]) -> Any:
        """Return a value of a logical type."""
        match schema["logicalType"]:
            case "decimal":
                digits = self.random.randint(0, schema["precision"])
                number = self.random.choice([1, -1]) * self.random.randint(0, 10**digits - 1)
                with decimal.localcontext(prec=100):
                    return decimal.Decimal(number).scaleb(-schema["scale"])
            case "date":
                return dt.date(1970, 1, 1) + dt.timedelta(days=self.random.randint(-700_000, 2_900_000))
            case "time-millis":
                return (EPOCH + dt.timedelta(milliseconds=self.random.randrange(86_400_000))).time()
            case "time-micros":
                return (EPOCH + dt.timedelta(microseconds=self.random.randrange(86_400_000_000))).time()
            case "timestamp-millis" | "local-timestamp-millis" as name:
                moment = EPOCH + dt.timedelta(milliseconds=self.random.randint(-(10**13), 10**14))
                return moment.replace(tzinfo=None) if name.startswith("local") else moment
            case "timestamp-micros" | "local-timestamp-micros" as name:
                moment = EPOCH + dt.timedelta(microseconds=self.random.randint(-(10**16), 10**17))
                return moment.replace(tzinfo=None) if name.startswith("local") else moment
            case _:
                return "123e4567-e89b-12d3-a456-426614174000"

    def integer(self, bits: int) -> int:
        """Return an integer of any magnitude, often at the edge of a varint length."""
        most = self.random.choice([6, 7, 13, 14, 20, 27, 31, 35, 42, 48, 49, 55, 56, 62, 63])
        bound = 1 << min(bits, most)
        return self.random.choice([bound - 1, -bound, self.random.randrange(-bound, bound)])

    def real(self) -> float:
        """Return a float, often a special one: signed zero, infinity or NaN."""
        return self.random.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -2.25, self.random.gauss(0, 1e6)])

    def length(self) -> int:
        """Return a random length for a string or a byte string."""
        return self.random.choice([0, 1, 3, 12, 13, 70, 200])


def packed(schema: Any, values: list[Any], before: int = 0, after: int = 0) -> pa.BinaryArray:
    """Return the values as fastavro writes them, as a slice of a larger array if `before` or `after` is given."""
    parsed = fastavro.parse_schema(schema)
    rows = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        rows.append(out.getvalue())
    return pa.array([b"\xff\xfe"] * before + rows + [b"\xff"] * after, pa.binary()).slice(before, len(values))


def unpacked(schema: Any, payloads: pa.BinaryArray) -> list[Any]:
    """Return the rows as fastavro reads them, with values in the form of `comparable_value`."""
    parsed = fastavro.parse_schema(schema)
    rows = []
    for payload in payloads.to_pylist():
        stream = io.BytesIO(payload)
        rows.append(comparable_value(fastavro.schemaless_reader(stream, parsed)))
        assert not stream.read(), "fastavro has read the whole row"
    return rows


def resolved(schema: Any, payloads: pa.BinaryArray, reader: Any) -> list[Any]:
    """Return the rows as fastavro reads them with a reader's schema.

    The rows are written and read once more, because fastavro does not round to a float.
    """
    parsed, wanted = fastavro.parse_schema(schema), fastavro.parse_schema(reader)
    rows = [fastavro.schemaless_reader(io.BytesIO(payload), parsed, wanted) for payload in payloads.to_pylist()]
    return unpacked(reader, packed(reader, rows))


def rows_of(record: Record, columns: dict[str, pa.Array], rows: int) -> list[Any]:
    """Return Arrow columns as rows, with values in fastavro's form."""
    lists = {name: column.to_pylist() for name, column in columns.items()}
    return [
        comparable_value({field.name: plain(field.type, lists[field.name][i]) for field in record.fields})
        for i in range(rows)
    ]


def plain(type_: Type, value: Any) -> Any:
    """Return an Arrow value in fastavro's form."""
    if value is None:
        return None
    match type_.kind:
        case "union":
            return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(type_.avro))
        case "record":
            return {field.name: plain(field.type, value[field.name]) for field in type_.fields}
        case "array":
            return [plain(type_.element, item) for item in value]
        case "map":
            return {key: plain(type_.element, item) for key, item in value}
        case _:
            return value


def comparable_value(value: Any) -> Any:
    """Return a form of the value that compares equal for equal values: NaN, signed zeros, UUIDs and decimals too."""
    match value:
        case dict():
            return {key: comparable_value(item) for key, item in value.items()}
        case list():
            return [comparable_value(item) for item in value]
        case float() | decimal.Decimal():
            return str(value) if isinstance(value, decimal.Decimal) and value else repr(float(value))
        case dt.datetime():
            return value.replace(tzinfo=None)
        case None | bool() | int() | str() | bytes() | dt.date() | dt.time():
            return value
        case _:
            return str(value)


def without_logical(schema: Any) -> Any:
    """Return the schema without logical types, whose out-of-range values fastavro would refuse."""
    if isinstance(schema, list):
        return [without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("items", "values", "type"):
        if isinstance(kept.get(key), dict | list):
            kept[key] = without_logical(kept[key])
    if "fields" in kept:
        kept["fields"] = [{**field, "type": without_logical(field["type"])} for field in kept["fields"]]
    return kept
