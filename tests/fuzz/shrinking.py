"""Shrink a case: remove changes, columns, tables and parts of the query while the finding stays the same.

Each step proposes smaller cases, from large removals to simpler values. The first case that is still wrong in the same
way is kept. A case that is refused or agrees is discarded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rowkind.service.plan.sql.dialect import RowkindSql
from tests.fuzz.case import Case
from tests.fuzz.changelogs import breaches
from tests.fuzz.running import Outcome

SECONDS = 90
"""The maximum time in seconds for shrinking one case."""

_CLAUSES = ("where", "having", "group", "qualify", "distinct", "order", "limit", "offset", "with_", "on", "using")
_PLAIN: tuple[Any, ...] = (1, "a", "1", 1.0, "2026-01-01", "2026-01-01T00:00:00Z")


def shrink(case: Case, finding: Outcome, run: Callable[[Case], Outcome], seconds: float = SECONDS) -> Case:
    """Return the smallest case found within so many seconds whose outcome is like `finding`."""
    deadline = time.monotonic() + seconds

    allowed = breaches(case.tables, case.changes)

    def same(smaller: Case) -> bool:
        try:
            if time.monotonic() > deadline or not breaches(smaller.tables, smaller.changes) <= allowed:
                return False
            return run(smaller).like(finding)
        except Exception:  # noqa: BLE001 -- a case that cannot be read is not a smaller case
            return False

    if finding.changes and same(cut := replace(case, changes=case.changes[: finding.changes])):
        case = cut
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for step in (_fewer_changes, _smaller_query, _fewer_columns, _simpler_job, _plainer_values):
            while (found := next((each for each in step(case) if same(each)), None)) is not None:
                case, progress = found, True
    return case


def _fewer_changes(case: Case) -> Iterator[Case]:
    count = len(case.changes)
    size = count
    while size:
        for at in range(0, count, size):
            left = [*case.changes[:at], *case.changes[at + size :]]
            if left:
                yield replace(case, changes=left)
                # Keep the other changes in their batches.
                if case.batch_rows > size:
                    yield replace(case, changes=left, batch_rows=case.batch_rows - size)
        size //= 2


def _fewer_columns(case: Case) -> Iterator[Case]:
    for table, entry in case.tables.items():
        if table.lower() not in case.sql.lower():
            left = {name: each for name, each in case.tables.items() if name != table}
            changes = [each for each in case.changes if each["table"] != table]
            if left and changes:
                yield replace(case, tables=left, changes=changes)
        for column in entry["columns"]:
            if column in entry.get("primary_key", ()) or len(entry["columns"]) == 1:
                continue
            columns = {name: type_ for name, type_ in entry["columns"].items() if name != column}
            changes = [_without(each, column) if each["table"] == table else each for each in case.changes]
            yield replace(case, tables={**case.tables, table: {**entry, "columns": columns}}, changes=changes)


def _without(change: dict[str, Any], column: str) -> dict[str, Any]:
    return {**change, "row": {name: value for name, value in change["row"].items() if name != column}}


def _simpler_job(case: Case) -> Iterator[Case]:
    for rows in (1, 2, len(case.changes)):
        if rows != case.batch_rows and (rows < case.batch_rows or rows == len(case.changes) < case.batch_rows):
            yield replace(case, batch_rows=rows)
    if case.sink["mode"] != "retract":
        yield replace(case, sink={"mode": "retract"})
    for table, entry in case.tables.items():
        simpler = [{**entry, "mode": "append"}] if entry["mode"] == "retract" else []
        simpler += [
            {key: value for key, value in entry.items() if key != left} for left in ("exact", "ttl") if left in entry
        ]
        if entry["mode"] != "upsert" and "primary_key" in entry:
            simpler.append({key: value for key, value in entry.items() if key != "primary_key"})
        for each in simpler:
            yield replace(case, tables={**case.tables, table: each})


def _plainer_values(case: Case) -> Iterator[Case]:
    """Yield cases in which all equal values of a column become one plain value, so that matching rows still match."""
    for table, entry in case.tables.items():
        for column in entry["columns"]:
            values = [each["row"].get(column) for each in case.changes if each["table"] == table]
            for value in dict.fromkeys(map(repr, values)):
                for plain in (*_PLAIN, None):
                    if type(plain) not in {type(each) for each in values} or repr(plain) == value:
                        continue
                    if any(value == repr(simpler) for simpler in _PLAIN) or (plain is None and value == "None"):
                        break
                    yield replace(case, changes=[_replaced(each, table, column, value, plain) for each in case.changes])


def _replaced(change: dict[str, Any], table: str, column: str, value: str, plain: Any) -> dict[str, Any]:
    row = change["row"]
    if change["table"] != table or column not in row or repr(row[column]) != value:
        return change
    return {**change, "row": {**row, column: plain}}


def _smaller_query(case: Case) -> Iterator[Case]:
    tree = sqlglot.parse_one(case.sql, read=RowkindSql)
    length = len(case.sql)
    for at in range(sum(1 for _ in tree.walk())):
        for change in _changes_of(_at(tree, at)):
            copy = tree.copy()
            node = _at(copy, at)
            try:
                smaller = change(node, copy)
                text = smaller.sql(dialect=RowkindSql) if smaller is not None else ""
            except (SqlglotError, AttributeError, ValueError):
                continue
            if text and len(text) < length:
                yield replace(case, sql=text)


def _at(tree: exp.Expression, number: int) -> exp.Expression:
    return next(node for at, node in enumerate(tree.walk()) if at == number)


_Change = Callable[[exp.Expression, exp.Expression], exp.Expression | None]


def _changes_of(node: exp.Expression) -> Iterator[_Change]:
    """Yield ways to shrink a part of a query: functions from the part and its tree to the new tree."""
    for clause in _CLAUSES:
        if node.args.get(clause):
            yield lambda piece, tree, clause=clause: _set(piece, tree, clause, None)
    for part in ("joins", "expressions", "windows", "ifs"):
        pieces = node.args.get(part) or []
        for number in range(len(pieces)):
            if part == "joins" or len(pieces) > 1:
                yield lambda piece, tree, part=part, number=number: _set(
                    piece, tree, part, [each for at, each in enumerate(piece.args[part]) if at != number]
                )
    if isinstance(node, exp.Subquery) and isinstance(node.parent, exp.From | exp.Join):
        for number in range(len(list(node.find_all(exp.Table)))):
            yield lambda piece, tree, number=number: _table_instead(piece, tree, number)
    for number in range(len(list(_inside(node)))):
        yield lambda piece, tree, number=number: _put(piece, tree, list(_inside(piece))[number])


def _set(piece: exp.Expression, tree: exp.Expression, part: str, value: Any) -> exp.Expression:
    piece.set(part, value)
    return tree


def _table_instead(piece: exp.Expression, tree: exp.Expression, number: int) -> exp.Expression:
    table = list(piece.find_all(exp.Table))[number].copy()
    table.set("alias", piece.args["alias"].copy() if piece.args.get("alias") else None)
    return _put(piece, tree, table)


def _inside(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the parts that may replace a query or an expression."""
    if isinstance(node, exp.SetOperation):
        yield from (node.left, node.right)
    elif isinstance(node, exp.Condition | exp.Paren | exp.Subquery | exp.Filter) and not isinstance(node, exp.Column):
        for each in node.iter_expressions():
            if isinstance(each, exp.Condition) and not isinstance(each, exp.Literal | exp.DataType):
                yield each


def _put(piece: exp.Expression, tree: exp.Expression, other: exp.Expression) -> exp.Expression:
    copied = other.copy()
    if piece is tree:
        return copied
    piece.replace(copied)
    return tree
