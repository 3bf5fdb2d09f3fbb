"""The case of the split law for a seed: tables in all modes, queries over all operators, changes with their times.

A fifth are cases of the other fuzzer, with its grammar. In another 18 % the result depends on the order of arrival, and
a model gives it. The others are stages on stages (`tests.fuzz.stages`) over tables with a time. A few consecutive seeds
share a job and differ in the changes, because planning takes longer than running.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tests.fuzz.arrivals import random_arrival
from tests.fuzz.case import Case, random_case
from tests.fuzz.changelogs import random_changes
from tests.fuzz.cut_case import CutCase
from tests.fuzz.event_times import Pace, with_clock, with_event_times, with_small_updates
from tests.fuzz.schemas import Column, Table
from tests.fuzz.stages import Stages
from tests.fuzz.timed_stages import Relation

_RETRACT = {"mode": "retract"}
_COUNTS = (4, 6, 8, 10, 14)
_SAME_JOB = 4


def random_cut_case(seed: int) -> CutCase:
    """Return the case of a seed."""
    rng = random.Random(f"job {seed // _SAME_JOB}")
    dice = random.Random(f"changes {seed}")
    form = rng.random()
    make = _by_grammar if form < 0.2 else _by_arrival if form < 0.38 else _in_stages
    return make(rng, dice, f"seed {seed}")


def _by_grammar(rng: random.Random, dice: random.Random, title: str) -> CutCase:
    """Return a case of the other fuzzer without a TTL; a second query in it may be the same query again."""
    while (case := random_case(rng.randrange(1 << 32))).ttl is not None:
        pass
    tables = [_told(name, entry) for name, entry in case.tables.items()]
    changes = with_small_updates(dice, tables, random_changes(dice, tables, dice.choice(_COUNTS)))
    case = replace(case, title=title, changes=changes)
    beside = rng.choice((None, None, case.sql))
    return CutCase(**{each.name: getattr(case, each.name) for each in fields(Case)}, beside=beside)


def _told(name: str, entry: Mapping[str, Any]) -> Table:
    """Return the table of a job file's entry."""
    types = {column: type_.removesuffix(" NOT NULL") for column, type_ in entry["columns"].items()}
    columns = tuple(Column(column, type_, type_ != entry["columns"][column]) for column, type_ in types.items())
    return Table(name, entry["mode"], columns, tuple(entry.get("primary_key", ())), entry.get("exact", False))


def _by_arrival(rng: random.Random, dice: random.Random, title: str) -> CutCase:
    """Return a query with a model, in half of the cases with a second query of the same kind."""
    tables = [_table(rng, name, timed=False) for name in ("t1", "t2")[: rng.choice((1, 1, 2))]]
    tables = [replace(each, columns=_required(each.columns, "k")) for each in tables]
    arrival, other = (random_arrival(rng, rng.choice(tables).name) for _ in range(2))
    beside = (other.sql, other.sink) if rng.random() < 0.5 else (None, None)
    tables = _read(tables, arrival.sql, beside[0])
    changes = with_small_updates(dice, tables, random_changes(dice, tables, dice.choice(_COUNTS)))
    entries = {each.name: _entry(rng, each) for each in tables}
    return CutCase(
        title, arrival.sql, entries, arrival.sink, 1, changes,
        beside=beside[0], beside_sink=beside[1], arrival=arrival,
    )  # fmt: skip


def _in_stages(rng: random.Random, dice: random.Random, title: str) -> CutCase:
    """Return a query of nested stages; a second query shares some of them, or only reads the same tables."""
    tables = [_table(rng, name, timed=True) for name in ("t1", "t2", "t3")[: rng.choice((1, 2, 2, 3))]]
    clocked = rng.random() < 0.25
    pace = Pace.random(rng, clocked=clocked)
    relations = [
        Relation(
            each.name, tuple(column.name for column in each.columns), is_table=True, grows=each.mode == "append",
            keyed=each.primary_key == ("id",),
        )
        for each in tables
    ]  # fmt: skip
    stages = Stages(rng, relations, clocked=clocked)
    chain = stages.chain(rng.choice((1, 1, 1, 2, 2, 2, 3)))
    sql, sink = _sunk(rng, chain[-1])
    beside, beside_sink = None, None
    match rng.choice(("none", "same", "stage", "other")):
        case "same":
            beside, beside_sink = _sunk(rng, chain[-1])
        case "stage":
            beside, beside_sink = _sunk(rng, stages.stage(chain[-1 - (rng.random() < 0.7)]))
        case "other":
            beside, beside_sink = _sunk(rng, stages.chain(1)[-1])
    tables = _read(tables, sql, beside)
    changes = with_small_updates(dice, tables, random_changes(dice, tables, dice.choice(_COUNTS)))
    changes = with_event_times(dice, tables, changes, pace)
    if clocked:
        asked = f"{sql} {beside}"
        # A row's time column may be the processing time.
        changes = with_clock(dice, changes, one_by_one=" AS OF " in asked and "PROCTIME()" in asked)
    entries = {each.name: _entry(rng, each) | pace.watermark(each) for each in tables}
    return CutCase(title, sql, entries, sink, 1, changes, beside=beside, beside_sink=beside_sink)


def _sunk(rng: random.Random, relation: Relation) -> tuple[str, dict[str, Any]]:
    """Return a relation as a query of a sink, with the sink's entry."""
    text = f"SELECT * FROM {relation.text}" if relation.is_table else relation.text
    closes = relation.grows or "ts" in relation.text or "window" in relation.text
    form = rng.random()
    if closes and form < 0.4:
        ordered = " ORDER BY ts" if relation.has("ts") and rng.random() < 0.25 and " LIMIT " not in text else ""
        if ordered:
            text = f"SELECT * FROM ({text})"
        return f"{text}{ordered}", {"mode": "append"}
    if closes and form < 0.5:
        return text, {"mode": "retract", "emit": "final"}
    if form > 0.9:
        others = [name for name in relation.columns if name != "k"]
        text = f"SELECT {', '.join(('COALESCE(k, 0) AS k', *others))} FROM ({text})"
        return text, {"mode": "upsert", "key": ["k"], "on_conflict": rng.choice(("last", "last", "first"))}
    return text, _RETRACT


def _read(tables: Sequence[Table], *queries: str | None) -> list[Table]:
    """Return the tables that the queries read."""
    return [each for each in tables if any(each.name in query for query in queries if query is not None)]


def _table(rng: random.Random, name: str, *, timed: bool) -> Table:
    mode = rng.choice(("append", "append", "retract", "retract", "upsert"))
    columns = [Column("id", "INT", required=True), Column("k", "INT", required=rng.random() < 0.4)]
    columns += [Column("v", rng.choice(("INT", "INT", "BIGINT", "DOUBLE")) if timed else "INT", rng.random() < 0.3)]
    columns += [Column("s", "STRING")] if not timed or rng.random() < 0.6 else []
    columns += [Column("ts", "TIMESTAMP", required=rng.random() < 0.85)] if timed else []
    keyed = mode == "upsert" or rng.random() < (0.2 if mode == "append" else 0.6)
    return Table(name, mode, tuple(columns), ("id",) if keyed else (), mode == "retract" and rng.random() < 0.35)


def _required(columns: Sequence[Column], name: str) -> tuple[Column, ...]:
    return tuple(replace(each, required=True) if each.name == name else each for each in columns)


def _entry(rng: random.Random, table: Table) -> Mapping[str, Any]:
    """Return the entry of a table; `debezium` tables are read like upsert tables."""
    entry = table.entry
    return {**entry, "mode": "debezium"} if table.mode == "upsert" and rng.random() < 0.3 else entry
