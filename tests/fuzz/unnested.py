"""Tables unnested into several rows per row, the elements of an array: views of a job and a model of their rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tests.fuzz.case import Case, random_sink
from tests.fuzz.changelogs import random_changes
from tests.fuzz.queries import random_query
from tests.fuzz.schemas import Column, Table, random_tables
from tests.fuzz.windows import random_windows, seen_as, with_times

_EXACT = 0.6


@dataclass(frozen=True)
class Unnested:
    """The rows of a table, each with three elements, or with one if its column `told` is NULL.

    The elements are the column `column`, with `other` in the middle. If `numbered`, each row has its element's
    position.
    """

    name: str
    table: str
    column: str
    told: str
    other: str
    numbered: bool

    @property
    def sql(self) -> str:
        """Return the view's query."""
        array = f"CASE WHEN {self.told} IS NULL THEN ARRAY({self.column}) "
        array += f"ELSE ARRAY({self.column}, {self.other}, {self.column}) END"
        call, names = ("POSEXPLODE", "p, x") if self.numbered else ("EXPLODE", "x")
        return f"SELECT * FROM {self.table} LATERAL VIEW {call}({array}) e AS {names}"

    @property
    def added(self) -> tuple[str, ...]:
        """Return the columns that the view adds to the table's."""
        return ("p", "x") if self.numbered else ("x",)

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the view's rows for these rows of the table."""
        found: list[dict[str, Any]] = []
        other = self.other.strip("'") if self.other.startswith("'") else int(self.other)
        for row in table.to_pylist():
            value = row[self.column]
            elements = [value] if row[self.told] is None else [value, other, value]
            found += [row | dict(zip(self.added[::-1], (x, p), strict=False)) for p, x in enumerate(elements)]
        types = {"p": pa.int32(), "x": table.schema.field(self.column).type}
        schema = pa.schema([*table.schema, *(pa.field(name, types[name]) for name in self.added)])
        return pa.Table.from_pylist(found, schema)

    def seen(self, tables: Sequence[Table]) -> Table:
        """Return the view as a table for the grammar."""
        (of,) = (each for each in tables if each.name == self.table)
        (column,) = (each for each in of.columns if each.name == self.column)
        added = {"p": Column("p", "INT", required=True), "x": Column("x", column.type)}
        columns = (*of.columns, *(added[name] for name in self.added))
        return replace(of, name=self.name, mode="retract", columns=columns, primary_key=())


def random_unnested(seed: int) -> Case:
    """Return a case whose query reads unnested rows, mostly of tables that are `exact`."""
    rng = random.Random(f"unnested {seed}")
    tables = [_exact(rng, each) for each in with_times(rng, random_tables(rng))]
    windows = [each for each in random_windows(rng, tables) if each.kind in ("HOP", "CUMULATE")]
    views = [*windows, *(each for each in (_unnested(rng, of) for of in tables) if each is not None)]
    seen = [each.seen(tables) if isinstance(each, Unnested) else seen_as(each, tables) for each in views]
    sql = random_query(rng, [*tables, *seen, *seen])
    changes = random_changes(rng, tables, rng.choice((8, 16, 24, 36)))
    entries = {each.name: each.entry for each in tables}
    rows = rng.choice((8, 20, 50))
    case = Case(f"unnested {seed}", sql, entries, {"mode": "retract"}, rows, changes, windows=views)
    return replace(case, sink=random_sink(rng, case))


def _exact(rng: random.Random, table: Table) -> Table:
    if rng.random() > _EXACT:
        return table
    columns, key = table.columns, table.primary_key
    if not key and rng.random() < _EXACT:
        plain = [each.name for each in columns if each.kind in ("int", "string", "date")]
        key = tuple(plain[:1])
        columns = tuple(replace(each, required=each.required or each.name in key) for each in columns)
    return replace(table, mode="retract", exact=True, primary_key=key, columns=columns)


def _unnested(rng: random.Random, table: Table) -> Unnested | None:
    plain = [each for each in table.columns if each.kind in ("int", "string")]
    if not plain:
        return None
    column = rng.choice(plain)
    other = "0" if column.kind == "int" else "'a'"
    told = rng.choice(table.columns).name
    return Unnested(f"{table.name}x", table.name, column.name, told, other, rng.random() < 0.5)
