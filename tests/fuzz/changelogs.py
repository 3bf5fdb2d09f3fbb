"""Random changes of random tables, as each kind of table writes them, and the rows that result.

The effect of a change on a table, as `Rows` implements it, is the first half of the oracle:

- Table with a primary key: +U (or +I) replaces the row with that key; -U and -D remove it.
- Retract table without a key: +I and +U add a row; -U and -D remove a row that is equal in all columns.
- A retraction that matches no row changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.schemas import Table, random_value

Row = dict[str, Any]
Change = dict[str, Any]
"""`{"table": …, "op": …, "row": {…}}`, a line of the file that `rowkind try` takes."""

_TRIES = 300
"""The maximum number of attempts: an insert-only table with a key may have no unused key left."""

_BARE = 0.3
_STRAYS = 0.06


@dataclass
class Rows:
    """The rows of one table, each with the number of the change that wrote it last."""

    primary_key: tuple[str, ...]
    columns: tuple[str, ...]
    live: list[tuple[int, Row]] = field(default_factory=list)

    def apply(self, op: str, row: Row, number: int) -> bool:
        """Apply a change and return whether it had an effect: False for a retraction that matches no row."""
        row = {name: row.get(name) for name in self.columns}
        at = self.find(row)
        if op in ("-U", "-D"):
            if at is not None:
                del self.live[at]
            return at is not None
        if self.primary_key and at is not None:
            del self.live[at]
        self.live.append((number, row))
        return True

    def find(self, row: Row) -> int | None:
        """Return the index of the row with this row's key, or without a key of an equal row."""
        identity = self.identity(row)
        return next((at for at, (_, other) in enumerate(self.live) if self.identity(other) == identity), None)

    def identity(self, row: Row) -> tuple[Any, ...]:
        """Return the identity that all changes of one row share."""
        # As text, because 0.0 and -0.0 are different rows and NaN equals itself.
        return tuple(repr(row.get(name)) for name in self.primary_key or self.columns)


def rows_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Rows]:
    """Return empty tables for the entries of a job file."""
    found = {}
    for name, entry in tables.items():
        key = entry.get("primary_key", [])
        found[name] = Rows((key,) if isinstance(key, str) else tuple(key), tuple(entry["columns"]))
    return found


def breaches(tables: Mapping[str, Mapping[str, Any]], changes: Sequence[Change]) -> set[str]:
    """Return how a table's changes violate its entry in the job file or the rules for every table."""
    found = set()
    rows = rows_of(tables)
    for each in changes:
        entry, own, op = tables[each["table"]], rows[each["table"]], each["op"]
        at = own.find(each["row"])
        if op in ("-U", "-D"):
            if at is None:
                found.add("a stray of an exact table" if entry.get("exact") else "a stray")
            elif entry["mode"] != "upsert" and repr(own.live[at][1]) != repr({**own.live[at][1], **each["row"]}):
                found.add("a retraction of another row")
        elif own.primary_key and at is not None and entry["mode"] != "upsert":
            if op == "+I":
                found.add("a second row with a key")
            elif entry.get("exact"):
                found.add("a bare update of an exact table")
        own.apply(op, each["row"], 0)
    return found


def random_changes(rng: random.Random, tables: Sequence[Table], count: int) -> list[Change]:
    """Return about so many changes of the tables, in a possible order of arrival."""
    written = [_Writer(rng, table) for table in tables]
    changes: list[Change] = []
    for _ in range(_TRIES):
        if len(changes) >= count:
            break
        changes += rng.choice(written).event()
    by_name = {writer.table.name: writer for writer in written}
    for _ in range(len(changes) // 4):
        _swap(rng, changes, by_name)
    return changes


def _swap(rng: random.Random, changes: list[Change], written: Mapping[str, _Writer]) -> None:
    """Let a change overtake the change before it, if they change different rows."""
    at = rng.randrange(1, len(changes))
    one, other = changes[at - 1], changes[at]
    if one["table"] == other["table"]:
        rows = written[one["table"]].rows
        if rows.identity(one["row"]) == rows.identity(other["row"]):
            return
    changes[at - 1], changes[at] = other, one


@dataclass
class _Writer:
    """A generator of the changes of one table."""

    rng: random.Random
    table: Table
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.rows = Rows(self.table.primary_key, tuple(each.name for each in self.table.columns))

    def event(self) -> list[Change]:
        """Return the changes of one row's random event."""
        changes = list(self._event())
        for each in changes:
            self.rows.apply(each["op"], each["row"], 0)
        return changes

    def _event(self) -> Iterator[Change]:
        rng, table, live = self.rng, self.table, self.rows.live
        row = self._row()
        if rng.random() < _STRAYS and self._may_stray():
            if self.rows.find(row) is None:
                yield self._change(rng.choice(("-U", "-D")) if table.mode == "retract" else "-D", row)
            return
        at = self.rows.find(row) if table.primary_key else None
        if table.mode == "append":
            if at is None:
                yield self._change("+I", row)
            return
        if at is None and live and rng.random() < 0.55:
            at = rng.randrange(len(live))
            row |= {name: live[at][1][name] for name in table.primary_key}
        if at is not None:
            yield from self._becomes(live[at][1], row)
            return
        if not table.primary_key and live and rng.random() < 0.3:
            row = dict(rng.choice(live)[1])
        yield self._change("+U" if table.mode == "upsert" and rng.random() < 0.5 else "+I", row)

    def _becomes(self, old: Row, row: Row) -> Iterator[Change]:
        """Yield the changes that delete an existing row or replace it."""
        rng, table = self.rng, self.table
        if rng.random() < 0.1:
            row = dict(old)
        if rng.random() < 0.4:
            yield self._change("-D", old)
        elif table.mode == "upsert":
            yield self._change(rng.choice(("+I", "+U")), row)
        elif table.primary_key and not table.exact and rng.random() < _BARE:
            # Only in an upsert table does a +I replace a row.
            yield self._change("+U", row)
        else:
            pair = [self._change("-U", old), self._change("+U", row)]
            # In a table without a key the two are different rows and may be in either order.
            if not table.primary_key and old != row and rng.random() < 0.2:
                pair.reverse()
            yield from pair

    def _may_stray(self) -> bool:
        table = self.table
        return table.mode != "append" and not table.exact

    def _row(self) -> Row:
        return {each.name: random_value(self.rng, each) for each in self.table.columns}

    def _change(self, op: str, row: Row) -> Change:
        if op == "-D" and self.table.mode == "upsert" and self.rng.random() < 0.5:
            row = {name: row[name] for name in self.table.primary_key}
        return {"table": self.table.name, "op": op, "row": dict(row)}
