"""JSON values with Kafka Connect's schema, as its JsonConverter writes both: `{"schema": …, "payload": …}`.

The schema is converted to the Avro schema that Connect's AvroConverter would have registered, and each payload to the
bytes that the AvroConverter would have written. The same rules then apply to both (`avro.resolve`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from rowkind.avro.errors import SchemaError
from rowkind.avro.json_rows import pack
from rowkind.avro.schema import Field, Record, Type
from rowkind.avro.text_values import ValueProblem
from rowkind.avro.type import TypeKind

_KINDS: Mapping[str, TypeKind] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_UNKNOWN_PRECISION = 64
_EXACT = Context(prec=1_000)


def is_wrapped(found: Any) -> bool:
    """Return whether a JSON value consists of a schema and a payload."""
    return isinstance(found, dict) and found.keys() == {"schema", "payload"}


def is_complete(schema: Any) -> bool:
    """Return whether a schema specifies a payload's types. Some writers leave the schema empty."""
    if not isinstance(schema, dict):
        return False
    return isinstance(schema.get("fields"), list) if schema.get("type") == "struct" else "type" in schema


def record_of(schema: Any, column: str = "value") -> Record:
    """Return the record that a schema describes. Raises SchemaError.

    A schema that is not a struct becomes a bare record with one column, called `column`.
    """
    type_ = _type(schema, "", 0)
    if type_.kind == "record":
        return Record(type_.name, type_.fields)
    return Record(column, (Field(column, type_),), bare=True)


def payloads(writer: Record, rows: Sequence[Mapping[str, Any]]) -> tuple[pa.BinaryArray, dict[int, ValueProblem]]:
    """Return payloads as rows of the writer's record.

    Also return, by index, the problems of payloads that violate the schema.
    """
    raw = Record(writer.name, tuple(replace(field, type=_base(field.type)) for field in writer.fields))
    if any(_is_odd(inner) for field in writer.fields for inner in field.type.walk()):
        rows = [{field.name: _prepared(field.type, row.get(field.name)) for field in writer.fields} for row in rows]
    return pack(raw, rows)


def _type(schema: Any, path: str, depth: int) -> Type:
    if depth > 64:
        raise SchemaError(f"the record's `schema` is nested too deeply at {path or 'the top level'}")
    kind = schema.get("type") if isinstance(schema, dict) else None
    named = schema.get("name") if isinstance(schema, dict) else None
    says = named if isinstance(named, str) else ""
    # Every value may be null here: the table's columns decide whether a missing or NULL value is allowed.
    match kind:
        case "struct":
            return Type("record", nullable=True, name=says or "Struct", fields=_fields(schema, path, depth))
        case "array":
            return Type("array", nullable=True, items=_type(schema.get("items"), f"{path}[]", depth + 1))
        case "map":
            if _entry(schema, "keys", path).get("type") != "string":
                raise SchemaError(f"the record's `schema` has a map at {path!r} whose keys are not strings")
            return Type("map", nullable=True, items=_type(schema.get("values"), f"{path}[]", depth + 1))
        case "bytes" if says == _DECIMAL:
            return _decimal(_entry(schema, "parameters", path), path)
        case str() if kind in _KINDS:
            return Type.parse({"type": _KINDS[kind], **({"connect.name": says} if says else {})}).as_nullable()
    raise SchemaError(f"the record's `schema` has an unknown type at {path or 'the top level'}: {str(kind)[:80]!r}")


def _fields(schema: Mapping[str, Any], path: str, depth: int) -> tuple[Field, ...]:
    found, listed = list[Field](), schema.get("fields")
    if not isinstance(listed, list):
        raise SchemaError(f"the record's `schema` has a struct without `fields` at {path or 'the top level'}")
    for each in listed:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise SchemaError(f"the record's `schema` has a field without a name at {path or 'the top level'}")
        found.append(Field(name, _type(each, f"{path}.{name}" if path else name, depth + 1), "null"))
    return tuple(found)


def _entry(schema: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    found = schema.get(name)
    if not isinstance(found, dict):
        raise SchemaError(f"the record's `schema` has no `{name}` at {path or 'the top level'}")
    return found


def _decimal(parameters: Mapping[str, Any], path: str) -> Type:
    try:
        scale = int(parameters.get("scale", 0))
        precision = int(parameters.get("connect.decimal.precision", _UNKNOWN_PRECISION))
    except (TypeError, ValueError):
        raise SchemaError(
            f"the record's `schema` has a decimal whose scale or precision is not an integer, at {path!r}"
        ) from None
    schema = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
        "connect.name": _DECIMAL,
    }
    return Type.parse(schema).as_nullable()


def _base(type_: Type) -> Type:
    """Return the type of Connect's JSON values: numbers for times, bytes for decimals."""
    return replace(
        type_,
        logical=None,
        precision=0,
        scale=0,
        says="",
        items=None if type_.items is None else _base(type_.items),
        fields=tuple(replace(field, type=_base(field.type)) for field in type_.fields),
    )


def _is_odd(type_: Type) -> bool:
    return type_.logical == "decimal"


def _prepared(type_: Type, value: Any) -> Any:
    """Return a value in which decimals that were written as numbers (`decimal.format: NUMERIC`) are bytes."""
    match type_.kind, value:
        case "array", list():
            return [_prepared(type_.element, each) for each in value]
        case "map", dict():
            return {name: _prepared(type_.element, each) for name, each in value.items()}
        case "record", dict():
            return {field.name: _prepared(field.type, value.get(field.name)) for field in type_.fields}
    if type_.logical != "decimal" or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > 200:
        return value
    unscaled = number.scaleb(type_.scale, context=_EXACT)
    whole = int(unscaled)
    # A number with more digits than its schema allows is invalid; `pack` reports it.
    return value if whole != unscaled else base64.b64encode(_two_s_complement(whole)).decode()


def _two_s_complement(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
