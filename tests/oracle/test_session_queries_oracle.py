"""Queries over sessions keep the windows of all rows of the partition: random queries, in batches of any size.

A model in plain Python (`session_queries`) computes the sessions. DuckDB evaluates the query over their rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.job.model import Job
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from tests.answers import answer
from tests.oracle.session_queries import BEGINNING, COLUMNS, Row, SessionQuery, random_session_query
from tests.seeds import drawn, seeds
from tests.trying import Change, folded

_DELAY = 20
"""How many minutes a row may be late; no retracted row is older than that."""


@pytest.mark.parametrize("mode", ["append", "retract", "no key", "upsert"])
@pytest.mark.parametrize("emit", ["changes", "final", "once", "keyed"])
def test_a_session_has_the_window_of_all_its_rows(tmp_path: Path, mode: str, emit: str) -> None:
    """The result equals the model's in batches of every size, with and without a watermark, in sinks of all modes."""
    for dice in drawn(f"sessions {mode} {emit}", seeds(6)):
        agrees(tmp_path, dice, mode, emit)


def agrees(folder: Path, dice: random.Random, mode: str, emit: str) -> bool:
    """Compare a random query with the model in batches of several sizes; return False if the query is refused."""
    marked = emit in ("final", "once") or dice.random() < 0.5
    tables = {name: _table(mode, watermark=marked, required=emit == "keyed") for name in ("a", "b")}
    query = random_session_query(dice, ["a", "b"])
    changes, rows = random_changes(dice, mode, nulls=emit != "keyed")
    expected, sink = Counter(_answer(query, rows)), _sink(dice, emit, query, tables)
    for size in sorted({1, 3, len(changes)}):
        try:
            found = folded(folder, query.sql, tables, changes, sink=sink, batch_rows=size, views=query.views)
        except PlanError:
            if emit in ("changes", "keyed"):
                raise
            return False
        assert Counter(map(_values, found)) == expected, f"batches of {size}: {query.sql} {query.views} {sink}"
    return True


def _sink(
    dice: random.Random, emit: str, query: SessionQuery, tables: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a sink; if it must have a key, one of the unique keys that the planner finds."""
    if emit != "keyed":
        return {"mode": "append" if emit == "once" else "retract"} | ({"emit": "final"} if emit == "final" else {})
    named = {name: {"topic": name, **table} for name, table in tables.items()}
    sink = {"topic": "o", "mode": "retract", "sql": query.sql}
    job = Job.model_validate({"job": "keys", "tables": named, "views": query.views, "sinks": {"o": sink}})
    root = logical(job, "o").root
    known = columns(root)
    keys = [key for key in in_order(unique_keys(root), root) if not any(known[name].nullable for name in key)]
    return {"mode": "upsert", "key": list(dice.choice(keys))} if keys and keys[0] else {"mode": "retract"}


def random_changes(dice: random.Random, mode: str, *, nulls: bool) -> tuple[list[Change], dict[str, list[Row]]]:
    """Return changes of both tables, roughly in order of time, and the rows that are left."""
    rows: dict[str, list[Row]] = {"a": [], "b": []}
    changes: list[Change] = []
    for number in range(dice.choice([6, 12, 20])):
        name = dice.choice("ab")
        minute = 5 * (number // 2) + 5 * dice.randrange(4)
        recent = [row for row in rows[name] if row[3] >= BEGINNING + timedelta(minutes=5 * (number // 2))]
        taken = dice.choice(recent) if mode != "append" and recent and dice.random() < 0.4 else None
        if taken is not None:
            rows[name].remove(taken)
            changes.append(_change(name, "-D", taken))
        if taken is None or dice.random() < 0.6:
            id_ = taken[0] if taken is not None and mode != "no key" else number
            row = (
                id_,
                dice.choice([0, 1, 1, None if nulls else 2]),
                dice.randrange(4),
                BEGINNING + timedelta(minutes=minute),
            )
            rows[name].append(row)
            if taken is not None and mode == "upsert":
                changes.pop()
            changes.append(_change(name, "+U" if taken is not None and mode == "upsert" else "+I", row))
    return changes, rows


def _change(table: str, op: str, row: Row) -> Change:
    id_, k, v, ts = row
    return {"table": table, "op": op, "row": {"id": id_, "k": k, "v": v, "ts": ts.isoformat()}}


def _table(mode: str, *, watermark: bool, required: bool) -> Mapping[str, Any]:
    whole = "INT NOT NULL" if required else "INT"
    columns_ = {"id": "BIGINT NOT NULL", "k": whole, "v": whole, "ts": "TIMESTAMP NOT NULL"}
    key = {} if mode in ("append", "no key") else {"primary_key": "id"}
    mark = {"watermark": {"column": "ts", "delay": f"{_DELAY}m"}} if watermark else {}
    return {"mode": "retract" if mode == "no key" else mode, "columns": columns_, **key, **mark}


def _answer(query: SessionQuery, rows: Mapping[str, Sequence[Row]]) -> list[tuple[Any, ...]]:
    tables = {name: (COLUMNS, each.rows(rows[each.table])) for name, each in query.relations.items()}
    return answer(query.oracle, tables)


def _values(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(datetime.fromisoformat(each) if isinstance(each, str) else each for each in row.values())
