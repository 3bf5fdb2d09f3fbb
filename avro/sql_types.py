"""Convert SQL type names, as Spark and Flink write them, to Avro schemas.

`to_avro` converts a type's text to an Avro schema as JSON-serializable values, which `schema.Type` reads. If Avro lacks
an integer width, the next larger width is used: TINYINT and SMALLINT are `int`. As in Spark SQL, TIMESTAMP is an
instant; the type without a time zone is TIMESTAMP_NTZ. A type without `NOT NULL` is a union with null, with null first.
"""

from __future__ import annotations

import re
from typing import Any

from rowkind.avro.errors import SchemaError

_TOKEN = re.compile(r"\s*(?:(`[^`]+`|[A-Za-z_][A-Za-z0-9_]*|\d+)|([<>(),:]))")

_PLAIN: dict[str, Any] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "BYTE": "int",
    "SMALLINT": "int",
    "SHORT": "int",
    "INT": "int",
    "INTEGER": "int",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "TEXT": "string",
    "UUID": {"type": "string", "logicalType": "uuid"},
    "DATE": {"type": "int", "logicalType": "date"},
    "VOID": "null",
}
_SIZED = {"VARCHAR": "string", "CHAR": "string", "BINARY": "bytes", "VARBINARY": "bytes", "BYTES": "bytes"}
_TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
_TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
_DECIMALS = {"DECIMAL", "DEC", "NUMERIC"}
_INSTANTS = {"TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMPTZ"}
_ACCEPTED = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, VARCHAR(n), CHAR(n), BINARY, DATE, "
    "TIME(p), TIMESTAMP(p), TIMESTAMP_NTZ(p), UUID, ARRAY<…>, MAP<STRING, …>, STRUCT<name: …>, each with or without "
    "NOT NULL"
)


def to_avro(text: str, name: str = "Row") -> Any:
    """Return the Avro schema of an SQL type. The names of records in it begin with `name`. Raises SchemaError."""
    parser = _Parser(text)
    schema = parser.type(name)
    if parser.peek():
        raise parser.error(f"unexpected {parser.peek()!r} after the type")
    return schema


class _Parser:
    """A recursive-descent parser of the tokens of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"unexpected {text[at:].strip()[:10]!r}")
            self._tokens.append(match[1] or match[2])
            at = match.end()
        self._at = 0

    def error(self, what: str) -> SchemaError:
        return SchemaError(f"SQL type {self._text!r}: {what}. Accepted types: {_ACCEPTED}.")

    def peek(self) -> str:
        return self._tokens[self._at].upper() if self._at < len(self._tokens) else ""

    def take(self) -> str:
        if self._at == len(self._tokens):
            raise self.error("it is incomplete")
        self._at += 1
        return self._tokens[self._at - 1]

    def accept(self, *words: str) -> bool:
        """Consume the given tokens if all of them come next. Otherwise, consume none."""
        found = tuple(token.upper() for token in self._tokens[self._at : self._at + len(words)])
        if found != words:
            return False
        self._at += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.error(f"{word!r} is missing before {self.peek() or 'the end'!r}")

    def numbers(self, most: int) -> list[int]:
        """Return the arguments in parentheses, if there are any."""
        found: list[int] = []
        if self.accept("("):
            while True:
                token = self.take()
                if not token.isdigit():
                    raise self.error(f"{token!r} is not a number")
                found.append(int(token))
                if not self.accept(","):
                    break
            self.expect(")")
        if len(found) > most:
            raise self.error("it has too many arguments")
        return found

    def type(self, name: str) -> Any:
        schema = self.base(name)
        if self.accept("NOT", "NULL"):
            return schema
        self.accept("NULL")
        return schema if schema == "null" else ["null", schema]

    def base(self, name: str) -> Any:
        word = self.take().upper()
        if word == "DOUBLE":
            self.accept("PRECISION")
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _SIZED:
            self.numbers(1)
            return _SIZED[word]
        if word in _DECIMALS:
            return self.decimal()
        if word == "TIME":
            return _TIME_MILLIS if self.precision(6) <= 3 else _TIME_MICROS
        if word in _INSTANTS or word == "TIMESTAMP_NTZ":
            return self.timestamp(word)
        if word == "ARRAY":
            self.expect("<")
            items = self.type(f"{name}_item")
            self.expect(">")
            return {"type": "array", "items": items}
        if word == "MAP":
            return self.map(name)
        if word in {"STRUCT", "ROW"}:
            return self.struct(name)
        if word == "INTERVAL":
            raise self.error("a column cannot be an INTERVAL: declare BIGINT for Debezium's durations, STRING for text")
        raise self.error(f"{word} is not a known type")

    def precision(self, default: int) -> int:
        precision = (self.numbers(1) or [default])[0]
        if precision > 9:
            raise self.error("the precision of seconds must be at most 9 digits")
        return precision

    def decimal(self) -> Any:
        precision, scale, *_ = [*self.numbers(2), 0, 0] if self.peek() == "(" else [10, 0]
        if not 1 <= precision <= 76 or scale > precision:
            raise self.error("DECIMAL(p,s) must have p from 1 to 76, and s at most p")
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def timestamp(self, word: str) -> Any:
        precision = self.precision(6)
        local = word == "TIMESTAMP_NTZ"
        if self.accept("WITHOUT", "TIME", "ZONE"):
            local = True
        elif not self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            self.accept("WITH", "TIME", "ZONE")
        unit = "millis" if precision <= 3 else "micros" if precision <= 6 else "nanos"
        return {"type": "long", "logicalType": f"{'local-' if local else ''}timestamp-{unit}"}

    def map(self, name: str) -> Any:
        self.expect("<")
        key = self.type(f"{name}_key")
        if key not in ("string", ["null", "string"]):
            raise self.error("the keys of a map must be STRING")
        self.expect(",")
        values = self.type(f"{name}_value")
        self.expect(">")
        return {"type": "map", "values": values}

    def struct(self, name: str) -> Any:
        fields: list[dict[str, Any]] = []
        self.expect("<")
        while not self.accept(">"):
            if fields:
                self.expect(",")
            field = self.take().strip("`")
            self.accept(":")
            schema = self.type(f"{name}_{field}")
            fields.append({"name": field, "type": schema, **default_of(schema)})
        return {"type": "record", "name": name, "fields": fields}


def default_of(schema: Any) -> dict[str, None]:
    """Return the `default` entry of a field with this schema: null if null is its first type, otherwise no entry."""
    return {"default": None} if schema == "null" or (isinstance(schema, list) and schema[0] == "null") else {}
