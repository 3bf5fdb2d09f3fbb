"""The type of a column: Avro on the wire, SQL in the plan and Arrow in memory.

A `Type` is a self-contained tree. Named Avro types are written out wherever they are used; only a record that contains
itself is referred to by name within itself (`kind` "reference"). Reading and writing a schema preserves everything that
determines the bytes or that schema resolution needs: names, aliases, defaults, the order of union branches.
Documentation, unknown attributes, and logical types that do not fit their base type are dropped. Connect's
`connect.name` may replace a missing logical type. The name is kept, because it may also have a meaning that no logical
type has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from rowkind.avro import sql_types
from rowkind.avro.errors import SchemaError
from rowkind.avro.logical import said_of
from rowkind.avro.type_tables import SQL

if TYPE_CHECKING:
    import pyarrow as pa

TypeKind = Literal[
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
    "fixed", "enum", "record", "array", "map", "union", "reference",
]  # fmt: skip

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_MOST_NODES = 20_000
_LONG = 250
_DEEPEST = 100
"""The maximum depth of types when written out, because code that walks them recurses at each level."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a nested record. The default is JSON text, or None for no default."""

    name: str
    type: Type
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Type:
    """An Avro type.

    - `nullable` with any kind except "null" and "union" means the union of the type and null; `null_first` says whether
      null is the first of the two branches. A "union" is nullable if one of its `branches` is null.
    - `logical` is set only if it fits: decimal, date, time-*, timestamp-*, local-timestamp-*, uuid, duration.
    - `precision`, `scale` belong to decimals, `size` to fixed, `symbols` and `default` to enums, `items` to arrays and
      maps (the values), `fields` to records, `branches` to unions, `name` to named types.
    - `says`: an attribute that a writer's schema gives to a value besides its Avro type: a Connect or Debezium name
      (`connect.name`), "big-decimal", or the unit of a number (`avro.ticks`). It does not change the bytes.
    """

    kind: TypeKind
    nullable: bool = False
    null_first: bool = True
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    name: str = ""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    items: Type | None = None
    fields: tuple[Field, ...] = ()
    branches: tuple[Type, ...] = ()
    says: str = ""

    @classmethod
    @cache
    def of(cls, text: str, name: str = "Row") -> Type:
        """Return the type with an SQL type name, for example `DECIMAL(10,2) NOT NULL`. Raises SchemaError."""
        return cls.parse(sql_types.to_avro(text, name))

    @classmethod
    def parse(cls, schema: Any) -> Type:
        """Return the type for an Avro schema given as JSON-serializable values. Raises SchemaError."""
        return SchemaReader().type(schema, "", ())

    @property
    def optional(self) -> bool:
        """Whether the value is encoded as a two-branch union with null."""
        return self.nullable and self.kind not in ("null", "union")

    @property
    def opaque(self) -> bool:
        """Whether values are only passed on, packed: general unions, recursive records, durations."""
        return self.kind in ("union", "reference") or self.logical == "duration"

    @property
    def orderable(self) -> bool:
        """Whether the type may be used for a key or an order, that is, whether it has comparable bytes."""
        return not self.opaque and self.kind not in ("record", "array", "map", "null")

    @property
    def varies(self) -> bool:
        """Whether values that are equal in SQL may have different bytes, such as 0.0 and -0.0."""
        return any(each.kind in ("float", "double", "map") for each in self.walk())

    @property
    def sql(self) -> str:
        """The SQL type in canonical spelling, without NOT NULL, e.g. `BIGINT`, `DECIMAL(10,2)`, `ARRAY<STRING>`."""
        if self.logical == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.logical and "timestamp" in self.logical:
            return SQL[self.logical.rpartition("-")[0]]
        if self.logical and not (self.logical == "uuid" and self.kind == "fixed"):
            return SQL[self.logical]
        match self.kind:
            case "array":
                return f"ARRAY<{self.element.sql}>"
            case "map":
                return f"MAP<STRING, {self.element.sql}>"
            case "record":
                return f"STRUCT<{', '.join(f'{field.name}: {field.type.sql}' for field in self.fields)}>"
            case _:
                return SQL[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column of this type; for an opaque type, binary with packed values."""
        import pyarrow as pa  # noqa: PLC0415 -- planning must not import Arrow

        from rowkind.avro.arrow_types import ARROW  # noqa: PLC0415 -- as above

        if self.logical == "decimal":
            return (pa.decimal128 if self.precision <= 38 else pa.decimal256)(self.precision, self.scale)
        if self.logical in ARROW:
            return ARROW[self.logical]
        match self.kind:
            case "fixed":
                return pa.binary(self.size)
            case "array":
                return pa.list_(pa.field("item", self.element.arrow, self.element.nullable))
            case "map":
                return pa.map_(pa.string(), pa.field("value", self.element.arrow, self.element.nullable))
            case "record":
                return pa.struct([pa.field(f.name, f.type.arrow, f.type.nullable) for f in self.fields])
            case _:
                return ARROW[self.kind]

    @property
    def avro(self) -> Any:
        """The Avro schema as JSON-serializable values."""
        return SchemaWriter().type(self, "")

    @property
    def element(self) -> Type:
        """The type of an array's items or a map's values."""
        assert self.items is not None, "only arrays and maps have elements"
        return self.items

    @property
    def required(self) -> Type:
        """The same type with NULL not allowed. Unions of several types are returned unchanged."""
        return replace(self, nullable=False, null_first=True) if self.optional else self

    def as_nullable(self) -> Type:
        """Return the type with NULL allowed.

        Null becomes the first branch; in a general union, it becomes the last, so that the others keep their index.
        """
        if self.nullable:
            return self
        if self.kind == "union":
            return replace(self, nullable=True, branches=(*self.branches, Type("null", nullable=True)))
        return replace(self, nullable=True, null_first=True)

    def walk(self) -> Iterator[Type]:
        """Yield this type and all types inside it."""
        yield self
        inner = [self.items] if self.items else [field.type for field in self.fields] or list(self.branches)
        for item in inner:
            yield from item.walk()

    @property
    def plain(self) -> Type:
        """The type without the writer's statements about its values (`says`)."""
        return replace(
            self,
            says="",
            items=None if self.items is None else self.items.plain,
            fields=tuple(replace(field, type=field.type.plain) for field in self.fields),
            branches=tuple(branch.plain for branch in self.branches),
        )

    def same_value(self, other: Type) -> bool:
        """Return whether equal values of both types have equal bytes and meaning. Type names do not matter."""
        return _meaning(self, ()) == _meaning(other, ())

    def __str__(self) -> str:
        return self.sql if self.nullable else f"{self.sql} NOT NULL"


def _meaning(type_: Type, inside: tuple[str, ...]) -> tuple[Any, ...]:
    """Return everything that determines a value's bytes and meaning; for a reference, the number of levels up."""
    if type_.kind == "record":
        inside = (*inside, type_.name)
    return (
        type_.kind,
        ("null first" if type_.null_first else "null last") if type_.optional else "",
        None if type_.logical == "uuid" else type_.logical,
        (type_.precision, type_.scale, type_.size, type_.symbols),
        type_.items and _meaning(type_.items, inside),
        tuple((field.name, _meaning(field.type, inside)) for field in type_.fields),
        tuple(_meaning(branch, inside) for branch in type_.branches),
        inside[::-1].index(type_.name) if type_.kind == "reference" else None,
    )


def null_branch(union: Type) -> int:
    """Return the index of null among the branches of a nullable union."""
    return [branch.kind for branch in union.branches].index("null")


class SchemaReader:
    """A reader of one schema's JSON; named types may be used again after their definition."""

    def __init__(self) -> None:
        self._definitions: dict[str, tuple[dict[str, Any], str]] = {}
        self._nodes = self._depth = 0

    def type(self, schema: Any, namespace: str, inside: tuple[str, ...]) -> Type:
        """Return the type of `schema` in a namespace; `inside` are the full names of the enclosing records."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise SchemaError(f"the schema is too large: more than {_MOST_NODES} types when fully expanded")
        if self._depth == _DEEPEST:
            raise SchemaError(f"the schema is nested too deeply: more than {_DEEPEST} nested types")
        self._depth += 1
        found = self._type(schema, namespace, inside)
        self._depth -= 1
        return found

    def _type(self, schema: Any, namespace: str, inside: tuple[str, ...]) -> Type:
        if isinstance(schema, list):
            return self._union([self.type(branch, namespace, inside) for branch in schema])
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return Type(cast("TypeKind", schema), nullable=schema == "null")
            return self._named(schema, namespace, inside)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"{json.dumps(schema)[:80]} is not an Avro schema: `type` is missing")
        match kind := schema["type"]:
            case "record" | "error" | "enum" | "fixed":
                name = self.define(schema, namespace)
                return self._defined(name, inside)
            case "array":
                return Type("array", items=self.type(_entry(schema, "items"), namespace, inside))
            case "map":
                return Type("map", items=self.type(_entry(schema, "values"), namespace, inside))
            case _:
                base = self.type(kind, namespace, inside)
                known = isinstance(kind, str) and kind in PRIMITIVES
                return replace(base, **said_of(base.kind, base.size, schema)) if known else base

    def define(self, schema: dict[str, Any], namespace: str) -> str:
        """Register a named type, and return its full name."""
        name = _entry(schema, "name")
        if "." not in name and schema.get("namespace", namespace):
            name = f"{schema.get('namespace', namespace)}.{name}"
        self._definitions[name] = (schema, name.rpartition(".")[0])
        return cast("str", name)

    def fields(self, schema: dict[str, Any], namespace: str, inside: tuple[str, ...]) -> tuple[Field, ...]:
        """Return the fields of a record."""
        fields = []
        for field in _entry(schema, "fields"):
            name = _entry(field, "name")
            try:
                type_ = self.type(_entry(field, "type"), namespace, inside)
            except SchemaError as error:
                # In a deeply nested schema, the innermost fields identify the position well enough.
                told = str(error)
                raise SchemaError(told if len(told) > _LONG else f"field {name!r}: {told}") from None
            default = json.dumps(field["default"], sort_keys=True) if "default" in field else None
            fields.append(Field(name, type_, default, tuple(field.get("aliases", ()))))
        return tuple(fields)

    def _named(self, name: str, namespace: str, inside: tuple[str, ...]) -> Type:
        candidates = [name] if "." in name or not namespace else [f"{namespace}.{name}", name]
        for candidate in candidates:
            if candidate in self._definitions:
                return self._defined(candidate, inside)
        raise SchemaError(f"the type {name!r} is neither an Avro type nor defined before its use")

    def _defined(self, name: str, inside: tuple[str, ...]) -> Type:
        schema, namespace = self._definitions[name]
        if name in inside:
            return Type("reference", name=name)
        match schema["type"]:
            case "enum":
                symbols = tuple(_entry(schema, "symbols"))
                return Type("enum", name=name, symbols=symbols, default=schema.get("default"))
            case "fixed":
                size = _entry(schema, "size")
                return Type("fixed", name=name, size=size, **said_of("fixed", size, schema))
            case _:
                return Type("record", name=name, fields=self.fields(schema, namespace, (*inside, name)))

    @staticmethod
    def _union(branches: list[Type]) -> Type:
        plain = [branch for branch in branches if branch.kind != "null"]
        if any(branch.kind == "union" or branch.optional for branch in branches):
            raise SchemaError("a union must not directly contain another union")
        if len(branches) == 2 and len(plain) == 1:
            return replace(plain[0], nullable=True, null_first=branches[0].kind == "null")
        return Type("union", nullable=len(plain) < len(branches), branches=tuple(branches))


def _entry(schema: dict[str, Any], name: str) -> Any:
    if name not in schema:
        raise SchemaError(f"{json.dumps(schema)[:80]}: {name!r} is missing")
    return schema[name]


class SchemaWriter:
    """A writer of types as JSON. Each named type is written in full at its first use.

    The plan combines records of different origins, so one name may denote two types. The second type then gets a number
    as a suffix. Names have no effect on the encoded bytes.
    """

    def __init__(self) -> None:
        self._written: dict[str, Type] = {}
        self._open: dict[str, str] = {}

    def type(self, type_: Type, namespace: str) -> Any:
        """Return the JSON-serializable schema of a type inside a namespace."""
        if type_.optional:
            inner = self.type(type_.required, namespace)
            return ["null", inner] if type_.null_first else [inner, "null"]
        logical: dict[str, Any] = {"logicalType": type_.logical} if type_.logical else {}
        if type_.logical == "decimal":
            logical |= {"precision": type_.precision, "scale": type_.scale}
        if type_.says:
            logical |= {"logicalType": type_.says} if type_.says == "big-decimal" else {"connect.name": type_.says}
        match type_.kind:
            case "array":
                return {"type": "array", "items": self.type(type_.element, namespace)}
            case "map":
                return {"type": "map", "values": self.type(type_.element, namespace)}
            case "union":
                return [self.type(branch, namespace) for branch in type_.branches]
            case "reference":
                return self._open[type_.name]
            case "record" | "enum" | "fixed":
                return self._named(type_, namespace, logical)
            case _:
                return {"type": type_.kind, **logical} if logical else type_.kind

    def fields(self, fields: tuple[Field, ...], namespace: str) -> list[dict[str, Any]]:
        """Return the JSON-serializable fields of a record."""
        return [
            {
                "name": field.name,
                "type": self.type(field.type, namespace),
                **({"default": json.loads(field.default)} if field.default is not None else {}),
                **({"aliases": list(field.aliases)} if field.aliases else {}),
            }
            for field in fields
        ]

    def claim(self, type_: Type, namespace: str) -> tuple[str, bool]:
        """Return the full name to write for a named type, and whether its definition has been written already."""
        base = name = type_.name if "." in type_.name or not namespace else f"{namespace}.{type_.name}"
        number = 1
        while name in self._written:
            if self._written[name] == type_:
                return name, True
            number += 1
            name = f"{base}_{number}"
        self._written[name] = type_
        return name, False

    def _named(self, type_: Type, namespace: str, logical: dict[str, Any]) -> Any:
        name, written = self.claim(type_, namespace)
        if written:
            return name
        match type_.kind:
            case "enum":
                default = {} if type_.default is None else {"default": type_.default}
                return {"type": "enum", "name": name, "symbols": list(type_.symbols), **default}
            case "fixed":
                return {"type": "fixed", "name": name, "size": type_.size, **logical}
            case _:
                outer = dict(self._open)
                self._open[type_.name] = name
                fields = self.fields(type_.fields, name.rpartition(".")[0])
                self._open = outer
                return {"type": "record", "name": name, "fields": fields}
