# ruff: noqa: S608 - every name in a statement is quoted
"""Translate a sink's query to one statement in DuckDB, from the plan as the SQL says it, before any pass changes it.

    Filter p.amount > 10                 n1 AS (SELECT "id" AS "p.id", "amount" AS "p.amount" FROM payments),
      Scan payments p                    n2 AS (SELECT * FROM n1 WHERE "p.amount" > …)

The plan has all names, types and subqueries resolved. Each of its nodes becomes one common table expression, with the
definition of the operator in SQL: no state, no order of arrival, no watermark. Scalar expressions are the DuckDB
expressions into which Rowkind translates Spark's, each of which is compared with Spark in the tests.

Some results depend on more than the rows: on which of two equal rows arrived first. A statement therefore has two
forms. The plain form decides ties in some way, which `seed` chooses. The *certain* form leaves out all rows that a tie
decides. A row of the result that depends on a tie is not in all forms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.columns import by_name, columns, parts_of
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession, LogicalStamp
from rowkind.service.plan.logical.subset import LogicalSingleRow, LogicalTemporalFilter
from rowkind.service.plan.passes.extract_equal_keys import extracted
from rowkind.service.plan.scalar.scalars import type_of
from rowkind.service.plan.scalar.time_windows import WindowEnds, WindowStarts
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.scalar.types import computable, duckdb, family
from rowkind.service.python.function import PythonFunction
from rowkind.service.verify.aggregates import Aggregated, aggregate
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.translation import OF_CLOCK, Translation, unknown_value
from rowkind.service.verify.unknown import Unknown, unknown_columns
from rowkind.service.verify.window_functions import window_function

_ORDER = "#order"
_PEERS = "#peers"


@dataclass(frozen=True)
class BatchStatement:
    """A query in DuckDB.

    - `sql`: the statement; its columns are those of the sink, in order.
    - `tables`: the job's tables that it reads.
    - `ties`: why the plain and the certain form may differ; empty if they are the same.
    - `functions`: the job's functions that must be registered.
    - `unknown`: the columns whose values are not known. They are NULL.
    """

    sql: str
    tables: frozenset[str]
    ties: tuple[str, ...]
    functions: tuple[PythonFunction, ...]
    unknown: Unknown


def statement(
    root: LogicalNode,
    tables: Mapping[str, str],
    unknown: Mapping[str, Unknown] | None = None,
    *,
    certain: bool = False,
    seed: int = 0,
) -> BatchStatement:
    """Translate a plan. `tables` has DuckDB's relation for each of the job's tables, `unknown` its unknown columns.

    Raises NotComparedError for a construct without a faithful translation.
    """
    try:
        translation, whole = Translation(tables, RULES, certain, seed), extracted(root)
        missing = unknown_columns(whole, unknown or {})
        last = translation.visit(whole)
    except Refusal as refusal:
        raise NotComparedError(refusal.text, refusal.at) from None
    parts = ",\n".join(f"{name} AS NOT MATERIALIZED ({sql})" for name, sql in translation.parts)
    return BatchStatement(
        f"WITH {parts}\nSELECT * FROM {last}",
        frozenset(translation.read),
        tuple(dict.fromkeys(translation.ties)),
        tuple(dict.fromkeys(translation.functions)),
        missing,
    )


def _scan(made: Translation, node: LogicalScan) -> str:
    made.read.add(node.source.table)
    names = node.source.declared.names
    shown = ", ".join(f"{quoted(name)} AS {quoted(node.name(name))}" for name in names)
    return f"SELECT {shown} FROM {made.tables[node.source.table]}"


def _filter(made: Translation, node: LogicalFilter) -> str:
    below = made.visit(node.input)
    return f"SELECT * FROM {below} WHERE {made.condition(node.conjuncts, columns(node.input))}"


def _project(made: Translation, node: LogicalProject) -> str:
    below, types = made.visit(node.input), columns(node.input)
    shown = [f"{made.value(output, types)} AS {quoted(name)}" for name, output in node.outputs.items()]
    return f"SELECT {', '.join(shown) or 'NULL AS nothing'} FROM {below}"


def _union(made: Translation, node: LogicalUnion) -> str:
    names = list(columns(node.inputs[0]))
    shown = ", ".join(map(quoted, names))
    return " UNION ALL ".join(f"SELECT {shown} FROM {made.visit(each)}" for each in node.inputs)


def _expand(made: Translation, node: LogicalExpand) -> str:
    below, types = made.visit(node.input), columns(node.input)
    array = type_of(node.array, by_name(types))
    moments = isinstance(node.array, WindowStarts | WindowEnds)
    value = made.value(node.array, types, cast=not moments)
    if array.kind == "map":
        value = f"map_entries({value})"
    parts = parts_of(array, inline=node.inline)
    taken = {}
    for name, part in node.elements.items():
        element = '"#element"'
        if array.kind == "map" or node.inline:
            element = f"struct_extract_at({element}, {part + 1})"
        type_ = parts[part].type
        if moments:
            # The function returns microseconds.
            taken[name] = f"make_timestamp{'' if family(type_) == 'local' else 'tz'}({element})"
        else:
            taken[name] = f"CAST({element} AS {duckdb(type_)})" if computable(type_) else element
    listed = f'SELECT *, {value} AS "#list" FROM {below}'
    if node.outer:
        if node.condition:
            raise NotComparedError("LEFT JOIN UNNEST with a condition", node.at)
        listed = (
            f'SELECT * REPLACE (CASE WHEN len("#list") > 0 THEN "#list" ELSE [NULL] END AS "#list"), '
            f'coalesce(len("#list"), 0) = 0 AS "#none" FROM ({listed})'
        )
    places = f'unnest(range({node.first}, {node.first} + len("#list")))'
    each = f'SELECT *, unnest("#list") AS "#element", {places} AS "#place" FROM ({listed})'
    place = 'CAST("#place" AS INTEGER)'
    if node.outer:
        place = f'CASE WHEN "#none" THEN NULL ELSE {place} END'
    shown = [*map(quoted, types), f"{place} AS {quoted(node.place)}"]
    shown += [f"{sql} AS {quoted(name)}" for name, sql in taken.items()]
    rows = f"SELECT {', '.join(shown)} FROM ({each})"
    return f"SELECT * FROM ({rows}) WHERE {made.condition(node.condition, columns(node))}"


def _join(made: Translation, node: LogicalJoin) -> str:
    left, right = made.visit(node.left.input), made.visit(node.right.input)
    own, other = columns(node.left.input), columns(node.right.input)
    equal = made.equal(node.keys, own, other)
    on = " AND ".join([*equal, f"({made.condition(node.condition, {**own, **other})})"] if node.condition else equal)
    on = on or "TRUE"
    if node.counts_right:
        if len(node.keys) != 1 or node.condition or node.keys[0].null_safe:
            raise NotComparedError("this form of IN", node.at)
        (key,) = node.keys
        here, there = made.value(key.left, own, key.type), made.value(key.right, other, key.type)
        among = f"{here} IN (SELECT {there} FROM {right})"
        if node.kind == "not in":
            return f"SELECT * FROM {left} WHERE NOT ({among})"
        assert node.answer is not None, "IN adds a match flag"
        return f"SELECT *, {among} AS {quoted(node.answer)} FROM {left}"
    matched = f"EXISTS (SELECT 1 FROM {right} WHERE {on})"
    match node.kind:
        case "semi":
            return f"SELECT * FROM {left} WHERE {matched}"
        case "anti":
            return f"SELECT * FROM {left} WHERE NOT {matched}"
        case "mark":
            assert node.answer is not None, "a mark join adds a match flag"
            return f"SELECT *, {matched} AS {quoted(node.answer)} FROM {left}"
    return f"SELECT * FROM {left} {node.kind.upper()} JOIN {right} ON {on}"


def _lookup(made: Translation, node: LogicalLookup) -> str:
    if node.match is None:
        raise NotComparedError("a lookup join matches the rows that were present when a row arrived", node.at)
    if node.condition:
        raise NotComparedError("a temporal join with this condition", node.at)
    match = node.match
    left, right = made.visit(node.left.input), made.visit(node.right.input)
    right_types = columns(node.right.input)
    equal = made.equal(node.keys, columns(node.left.input), right_types)
    time = quoted(match.right)
    keys = [made.value(key.right, right_types, key.type) for key in node.keys]
    made.ties.append("of rows with the same time, a temporal join takes the last to arrive")
    peers = f"count(*) OVER (PARTITION BY {', '.join([*keys, time])})"
    one = f"row_number() OVER (PARTITION BY {', '.join([*keys, time])} ORDER BY {made.any_order(right_types)}) = 1"
    rows = f"SELECT *, {peers} AS {quoted(_PEERS)} FROM {right} WHERE {time} IS NOT NULL QUALIFY {one}"
    on = " AND ".join([*equal, f"{quoted(match.left)} {match.comparison} {time}"])
    shown = ", ".join(map(quoted, columns(node)))
    kind = "LEFT JOIN" if node.pads else "JOIN"
    certain = f" WHERE coalesce({quoted(_PEERS)}, 1) = 1" if made.certain else ""
    return f"SELECT {shown} FROM {left} ASOF {kind} ({rows}) ON {on}{certain}"


def _aggregate(made: Translation, node: LogicalAggregate) -> str:
    below, types = made.visit(node.input.input), columns(node.input.input)
    group = ", ".join(map(quoted, node.group))
    if not node.calls and not node.is_global:
        return f"SELECT DISTINCT {group} FROM {below}"
    shown = [quoted(name) for name in node.group]
    for name, call in node.calls.items():
        try:
            found = aggregate(call, types, certain=made.certain, seed=made.seed)
        except NotComparedError:
            # The value is unknown (`unknown_columns`).
            found = Aggregated(unknown_value(call.type))
        made.ties += found.ties
        shown.append(f"{found.sql} AS {quoted(name)}")
    by = f" GROUP BY {group}" if group else ""
    return f"SELECT {', '.join(shown) or 'count(*) AS nothing'} FROM {below}{by}"


def ordering(order: Sequence[OrderColumn]) -> list[str]:
    """Return the terms of an ORDER BY. The order of arrival is not among them."""
    return [
        f"{quoted(each.column)} {'DESC' if each.descending else 'ASC'} NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in order
        if each.column is not None
    ]


def _window(made: Translation, node: LogicalWindow) -> str:
    below, types = made.visit(node.input), columns(node.input)
    by = f"PARTITION BY {', '.join(map(quoted, node.partition))}" if node.partition else ""
    terms = ordering(node.order)
    if node.function != "row_number":
        over = f"({by} ORDER BY {', '.join(terms)})" if terms else f"({by})"
        return f"SELECT *, CAST({node.function}() OVER {over} AS INTEGER) AS {quoted(node.number)} FROM {below}"
    made.ties.append("ROW_NUMBER numbers tied rows in the order of arrival")
    over = f"{by} ORDER BY {', '.join([*terms, made.any_order(types)])}"
    rows = f"SELECT *, CAST(row_number() OVER ({over}) AS INTEGER) AS {quoted(node.number)}"
    if not made.certain:
        return f"{rows} FROM {below}"
    return f"SELECT * EXCLUDE ({quoted(_PEERS)}) FROM ({rows}, {_peers(by, terms)} FROM {below}) WHERE {_UNTIED}"


_UNTIED = f"{quoted(_PEERS)} = 1"


def _peers(by: str, terms: Sequence[str]) -> str:
    """Return a column with the number of rows that have a row's place in the order."""
    over = f"{by} ORDER BY {', '.join(terms)} RANGE BETWEEN CURRENT ROW AND CURRENT ROW" if terms else by
    return f"count(*) OVER ({over}) AS {quoted(_PEERS)}"


def _over(made: Translation, node: LogicalOver) -> str:
    below, types = made.visit(node.input.input), columns(node.input.input)
    by = f"PARTITION BY {', '.join(map(quoted, node.partition))}" if node.partition else ""
    terms = ordering(node.order)
    tied = any(call.frame.kind == "rows" or call.function not in _BY_VALUE for call in node.calls.values())
    tied = tied or len(terms) < len(node.order)
    made.ties += ["a window function reads tied rows in the order of arrival"] if tied else []
    plain = f"SELECT *, {_peers(by, terms)} FROM {below}"
    if made.certain and tied:
        most = f"max({quoted(_PEERS)}) OVER ({by})"
        plain = f"SELECT * EXCLUDE ({quoted(_PEERS)}), {most} AS {quoted(_PEERS)} FROM ({plain}) QUALIFY {most} = 1"
    last = [*terms, made.any_order(types)] if tied else terms
    shown = [quoted(name) for name in types]
    for name, call in node.calls.items():
        order = types.get(node.order[0].column or "") if len(node.order) == 1 else None
        sql = window_function(call, types, by, last if call.frame.kind == "rows" else terms or last, order)
        shown.append(f"{sql} AS {quoted(name)}")
    return f"SELECT {', '.join(shown)} FROM ({plain})"


_BY_VALUE = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
)
"""The window functions whose result over a frame of values does not depend on the order of tied rows."""


def _session(made: Translation, node: LogicalSession) -> str:
    below, types = made.visit(node.input.input), columns(node.input.input)
    by = ", ".join(map(quoted, node.partition))
    part, time = f"PARTITION BY {by}" if by else "", quoted(node.time)
    gap = f"to_microseconds({node.gap})"
    before = f"lag({time}) OVER ({part} ORDER BY {time})"
    begins = f'SELECT *, {before} IS NULL OR {time} > {before} + {gap} AS "#begins" FROM {below}'
    number = f'sum("#begins"::INTEGER) OVER ({part} ORDER BY {time} RANGE UNBOUNDED PRECEDING)'
    numbered = f'SELECT *, {number} AS "#session" FROM ({begins})'
    session = ", ".join([*([by] if by else []), '"#session"'])
    shown = [*map(quoted, types), f"min({time}) OVER (PARTITION BY {session}) AS {quoted(node.start)}"]
    if node.end is not None:
        shown.append(f"max({time}) OVER (PARTITION BY {session}) + {gap} AS {quoted(node.end)}")
    return f"SELECT {', '.join(shown)} FROM ({numbered})"


def _stamp(made: Translation, node: LogicalStamp) -> str:
    # The time is unknown (`unknown_columns`).
    return f"SELECT *, CAST(NULL AS TIMESTAMPTZ) AS {quoted(node.time)} FROM {made.visit(node.input.input)}"


def _match(_made: Translation, node: LogicalMatch) -> str:
    raise NotComparedError("MATCH_RECOGNIZE", node.at)


def _through(made: Translation, node: LogicalSingleRow | LogicalTemporalFilter) -> str:
    if isinstance(node, LogicalTemporalFilter) and (node.begins is not None or node.ends is not None):
        raise NotComparedError(OF_CLOCK, node.at)
    return f"SELECT * FROM {made.visit(node.input.input)}"


RULES: Mapping[type[LogicalNode], Callable[[Translation, Any], str]] = {
    LogicalScan: _scan,
    LogicalFilter: _filter,
    LogicalProject: _project,
    LogicalUnion: _union,
    LogicalExpand: _expand,
    LogicalJoin: _join,
    LogicalLookup: _lookup,
    LogicalAggregate: _aggregate,
    LogicalWindow: _window,
    LogicalOver: _over,
    LogicalSession: _session,
    LogicalStamp: _stamp,
    LogicalMatch: _match,
    LogicalSingleRow: _through,
    LogicalTemporalFilter: _through,
}
