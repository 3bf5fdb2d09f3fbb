"""Rows of orders for calcs, written and read with fastavro."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from rowkind.avro.schema import Record, Type
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, Rows, binary
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.keys import Key, SubKeyPart

I, UB, UA, D = RowKind  # noqa: E741 -- the row kinds by their letters
ORDERS = Record.of({"id": "BIGINT NOT NULL", "customer": "INT", "amount": "DOUBLE", "note": "STRING"}, name="orders")

Values = dict[str, Any]


def column(name: str, record: Record = ORDERS) -> Expression:
    """Return a bare column."""
    return Expression(f'"{name}"', record.type(name), (name,), name, name)


def columns(*names: str) -> tuple[Expression, ...]:
    """Return bare columns."""
    return tuple(column(name) for name in names)


def by(*names: str, **how: bool) -> tuple[SubKeyPart, ...]:
    """Return bare columns as a sub-key."""
    return tuple(SubKeyPart(column(name), **how) for name in names)


def hand_on(**changes: Any) -> Calc:
    """Return a calc that changes nothing, except for the parts given."""
    return replace(Calc(ORDERS, ORDERS, columns(*ORDERS.names)), **changes)


LARGE = Expression('"amount" > 2', Type.of("BOOLEAN"), ("amount",), "amount > 2")
BY_CUSTOMER = Key(columns("customer"), (False,))


def encoded(record: Record, rows: list[Values]) -> pa.BinaryArray:
    """Return rows as fastavro writes them."""
    schema = fastavro.parse_schema(record.avro)
    return binary(_written(schema, row) for row in rows)


def _written(schema: Any, row: Values) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, schema, row)
    return output.getvalue()


def decoded(record: Record, payloads: pa.BinaryArray) -> list[Values]:
    """Return payloads as fastavro reads them."""
    schema = fastavro.parse_schema(record.avro)
    return [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in payloads.to_pylist()]  # type: ignore[misc]


def changes_of(*changes: tuple[RowKind, Values], first: int = 0) -> Rows:
    """Return rows of `ORDERS` in order; omitted columns are NULL."""
    rows = [{"customer": None, "amount": None, "note": None} | row for _, row in changes]
    seq = np.arange(first, first + len(rows), dtype=np.int64) << 16
    return Rows(np.array([kind for kind, _ in changes], np.int8), seq, encoded(ORDERS, rows))


def random_rows(rng: random.Random, count: int) -> list[Values]:
    """Return random rows of `ORDERS` with values from small ranges."""
    return [
        {
            "id": rng.randint(1, 9),
            "customer": rng.choice([None, 1, 2, 3]),
            "amount": rng.choice([None, 0.0, -0.0, 1.5, 2.5, 3.5]),
            "note": rng.choice([None, "", "a", "é"]),
        }
        for _ in range(count)
    ]


def kinds(changes: Changes) -> list[RowKind]:
    """Return the row kinds in order."""
    return [RowKind(kind) for kind in changes.kind.tolist()]
