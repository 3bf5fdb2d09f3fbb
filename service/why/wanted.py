"""The rows of a sink that the user asks about: conditions on columns of the result.

7                          the value of the sink's only key column
order_id=7 line=2          one condition per column; a keyless sink needs this form
{"order_id": 7}            the same as JSON
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowkind.avro import codec
from rowkind.avro.json_rows import check_row, decode, encode, parse_line
from rowkind.avro.schema import Record
from rowkind.avro.text_values import ValueProblem
from rowkind.errors import REFUSED, RowkindError
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.sql.scope import near
from rowkind.service.why.atoms import Atom, column_of, said


class WantedError(RowkindError):
    """The key is not one that the sink can have."""

    exit_code = REFUSED


@dataclass(frozen=True)
class WantedRow:
    """Conditions `column = value` on the rows of a sink. `record` has the columns; `row` the values as JSON."""

    record: Record
    row: Mapping[str, Any]
    atoms: tuple[Atom, ...]

    @property
    def text(self) -> str:
        """The conditions as SQL."""
        return said(self.atoms)


def wanted(sink: PhysicalSink, key: Sequence[str]) -> WantedRow:
    """Parse the arguments of the command. Raises WantedError, which says what is allowed."""
    values = _values(sink, key)
    for name in values:
        if name not in sink.value.names:
            close = near(name, sink.value.names) or "."
            raise WantedError(f"sink {sink.name} has no column {name!r}{close} {_allowed(sink)}")
    record = sink.value.select([name for name in sink.value.names if name in values])
    try:
        payload = encode(record, [check_row(record, _typed(record, values))])
    except ValueProblem as problem:
        raise WantedError(f"{problem}. {_allowed(sink)}") from None
    read = codec.read(record, payload)
    atoms = tuple(Atom.of(column_of(each.name, each.type), [read.column(each.name)]) for each in record.fields)
    return WantedRow(record, decode(record, payload)[0], atoms)


def _values(sink: PhysicalSink, key: Sequence[str]) -> Mapping[str, Any]:
    """Return the values by column: text, or what JSON has."""
    text = " ".join(key).strip()
    if text.startswith("{"):
        try:
            found = parse_line(text)
        except (ValueError, RecursionError) as error:
            raise WantedError(f"the key is not JSON: {error}. {_allowed(sink)}") from None
        if not isinstance(found, dict) or not found:
            raise WantedError(f"the key has no column. {_allowed(sink)}")
        return found
    if len(key) == 1 and len(sink.key) == 1 and _is_value(sink, key[0]):
        return {sink.key[0]: key[0]}
    conditions: dict[str, Any] = {}
    for each in key:
        name, equals, value = each.partition("=")
        if not equals:
            what = f"has the key ({', '.join(sink.key)})" if sink.key else "has no key"
            raise WantedError(f"{each!r} has no column, and sink {sink.name} {what}. {_allowed(sink)}")
        conditions[name] = value
    return conditions


def _is_value(sink: PhysicalSink, key: str) -> bool:
    """Return whether a text is the value of the only key column rather than a condition `column=value`."""
    name, equals, _ = key.partition("=")
    return not equals or (sink.value.type(sink.key[0]).kind == "string" and name not in sink.value.names)


def _typed(record: Record, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON has them for the columns' types. `NULL` is null where a column allows it."""
    row: dict[str, Any] = {}
    for field in record.fields:
        value = values[field.name]
        if isinstance(value, str) and field.type.kind != "string" and field.type.logical is None:
            try:
                value = parse_line(value)
            except ValueError:
                value = values[field.name]
        if values[field.name] == "NULL" and field.type.nullable:
            value = None
        row[field.name] = value
    return row


def _allowed(sink: PhysicalSink) -> str:
    """Say which keys the sink can have."""
    of = sink.value.select(sink.key) if sink.key else sink.value
    columns = ", ".join(f"{field.name} {field.type.sql}" for field in of.fields)
    example = " ".join(f"{field.name}=…" for field in of.fields[: len(sink.key) or 1])
    return f"The {'key' if sink.key else 'columns'} of sink {sink.name}: {columns}. Write {example}"
