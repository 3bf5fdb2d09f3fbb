"""The schema of a row: an Avro record whose fields are the columns of a table, a topic or an edge of the plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rowkind.avro.errors import SchemaError
from rowkind.avro.type import Field, SchemaReader, SchemaWriter, Type, TypeKind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Field", "Record", "Type", "TypeKind"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_LONGEST = 2 << 20
"""The maximum number of characters of a schema. Confluent's registry accepts half as many."""

_DEEPEST = 400
"""The maximum depth of a schema's JSON: each nested type takes up to four brackets."""


@dataclass(frozen=True)
class Record:
    """A row's columns, in the order of their values in a payload.

    `bare`: whether the schema is the type of the single column itself, not a record with that column, as is common for
    topic keys; the bytes are the same. A record without columns is allowed: its payloads are empty.
    """

    name: str
    fields: tuple[Field, ...]
    bare: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        names = [column.name for column in self.fields]
        if twice := {name for name in names if names.count(name) > 1}:
            raise SchemaError(f"record {self.name!r} has two columns named {min(twice)!r}: rename one")

    @classmethod
    def of(cls, columns: Mapping[str, str], name: str = "Row") -> Record:
        """Return a record with the given columns and SQL types.

        Nullable columns default to NULL. Raises SchemaError.
        """
        fields = []
        for column, text in columns.items():
            if not _NAME.fullmatch(column):
                raise SchemaError(f"{column!r} cannot be a column of an Avro record: use letters, digits and _ only")
            try:
                type_ = Type.of(text, f"{name.rpartition('.')[2]}_{column}")
            except SchemaError as error:
                raise SchemaError(f"column {column!r}: {error}") from None
            fields.append(Field(column, type_, "null" if type_.nullable else None))
        return cls(name, tuple(fields))

    @classmethod
    def parse(cls, schema: Any, column: str = "value", references: Sequence[str] = ()) -> Record:
        """Return a record from an Avro schema, given as JSON text or JSON-serializable values.

        A schema that is not a record becomes a bare record whose one column is called `column`. `references` are
        schemas that define types which the schema may use by name. Raises SchemaError.
        """
        if isinstance(schema, bytes | str):
            schema = _parsed(schema)
        reader = SchemaReader()
        for reference in references:
            reader.type(_parsed(reference), "", ())
        if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
            name = reader.define(schema, "")
            # Columns are read as if they were outside the record, so that each column is complete even if it contains
            # the record again.
            return cls(name, reader.fields(schema, name.rpartition(".")[0], ()))
        return cls(column, (Field(column, reader.type(schema, "", ())),), bare=True)

    def to_json(self) -> str:
        """Return the Avro schema as JSON text; equal records have equal text."""
        return json.dumps(self.avro)

    @property
    def avro(self) -> Any:
        """The Avro schema as JSON-serializable values."""
        writer = SchemaWriter()
        if self.bare:
            return writer.type(self.fields[0].type, "")
        name, _ = writer.claim(Type("record", name=self.name, fields=self.fields), "")
        return {"type": "record", "name": name, "fields": writer.fields(self.fields, name.rpartition(".")[0])}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the decoded columns."""
        import pyarrow as pa  # noqa: PLC0415 -- planning must not import Arrow

        return pa.schema([pa.field(column.name, column.type.arrow, column.type.nullable) for column in self.fields])

    def index(self, name: str) -> int:
        """Return the index of a column. Raises SchemaError for an unknown name."""
        if name not in self.names:
            raise SchemaError(f"record {self.name!r} has no column {name!r}; it has {', '.join(self.names) or 'none'}")
        return self.names.index(name)

    def field(self, name: str) -> Field:
        """Return a column by name. Raises SchemaError."""
        return self.fields[self.index(name)]

    def type(self, name: str) -> Type:
        """Return the type of a column. Raises SchemaError."""
        return self.field(name).type

    def select(self, names: Iterable[str]) -> Record:
        """Return a record with only the given columns, in the given order. Raises SchemaError."""
        return Record(self.name, tuple(self.field(name) for name in names))

    def rename(self, mapping: Mapping[str, str]) -> Record:
        """Return the same columns, renamed by `mapping`. Raises SchemaError if two columns get the same name."""
        return replace(
            self,
            fields=tuple(replace(column, name=mapping.get(column.name, column.name)) for column in self.fields),
        )

    @property
    def plain(self) -> Record:
        """The same columns without the writer's statements about their values (`Type.says`)."""
        return replace(self, fields=tuple(replace(column, type=column.type.plain) for column in self.fields))

    def nullable(self) -> Record:
        """Return the same columns, all nullable.

        Columns that were NOT NULL get the default NULL, except for unions, which get no default.
        """
        return replace(
            self,
            fields=tuple(
                column
                if column.type.nullable
                else replace(
                    column, type=column.type.as_nullable(), default=None if column.type.kind == "union" else "null"
                )
                for column in self.fields
            ),
        )

    def concat(self, other: Record) -> Record:
        """Return the columns of this record, followed by those of `other`. Raises SchemaError if they share a name."""
        return Record(self.name, self.fields + other.fields)

    def same_rows(self, other: Record) -> bool:
        """Return whether every payload represents the same row under both schemas. Column names do not matter."""
        return len(self.fields) == len(other.fields) and all(
            mine.type.same_value(theirs.type) for mine, theirs in zip(self.fields, other.fields, strict=True)
        )


def _parsed(text: bytes | str) -> Any:
    """Return a schema's parsed JSON or, if the text is only a name, that name. Raises SchemaError."""
    if len(text) > _LONGEST:
        raise SchemaError(f"the schema is too large: {len(text):,} characters; the maximum is {_LONGEST:,}")
    try:
        found = json.loads(text)
    except RecursionError:
        raise SchemaError(f"the schema is nested too deeply: more than {_DEEPEST} nested brackets") from None
    except ValueError as error:
        name = text.decode(errors="replace") if isinstance(text, bytes) else text
        if not _NAME.fullmatch(name.strip()):
            raise SchemaError(f"the schema is not JSON: {error}") from None
        return name.strip()
    level, depth = [found], 0
    while level := [inner for each in level for inner in _inside(each)]:
        depth += 1
        if depth > _DEEPEST:
            raise SchemaError(f"the schema is nested too deeply: more than {_DEEPEST} nested brackets")
    return found


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
