"""Check that a query meets the requirements of its sink's mode.

append    rows of the result are never updated or deleted
upsert    the sink's key is a unique key of the result, and is never NULL
retract   no requirement; a key, if there is one, only names the columns of the topic's key
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowkind.avro.connect_schema import loses_time, without_form
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver, LogicalSession
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.passes.delay_until_final import BY_THEIR_END, final_at, has_sessions, without_watermark
from rowkind.service.plan.passes.derive_state_cleanup import timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.sql.scope import near
from rowkind.service.plan.traits.aliases import source
from rowkind.service.plan.traits.changelog_modes import updating
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.tree import inputs


def check_sink(query: Query) -> Query:
    """Check that the sink can accept the query's result. Raises Refusal if it cannot.

    >>> example(check_sink, "SELECT status, COUNT(*) AS n FROM orders GROUP BY status", sink="append")
    Refusal: an append sink accepts only inserts, but orders has mode retract, so its rows may be updated or
    deleted: give the sink mode retract or upsert
    """
    sink, result = query.sink, columns(query.root)
    for column in sink.key:
        if column not in result:
            raise Refusal(f"{column!r} is not a column of the result{near(column, result)}", field="key")
        if not result[column].orderable:
            raise Refusal(f"{column!r} is {result[column].sql}, which cannot be part of a key", field="key")
    if sink.connect_schema:
        _check_connect(query)
    if sink.mode == "append":
        _check_append(query)
    if sink.mode == "upsert":
        _check_unique(query)
        for column in sink.key:
            if result[column].nullable:
                raise Refusal(
                    f"the key column {column!r} may be NULL, and a row whose key is NULL cannot be replaced: remove "
                    f"such rows with WHERE {column} IS NOT NULL, write COALESCE({column}, …) AS {column}, or give "
                    f"the sink mode retract",
                    query.outputs[column],
                    field="key",
                )
    return query


def _check_connect(query: Query) -> None:
    for name, type_ in columns(query.root).items():
        if (part := without_form(type_)) is not None:
            raise Refusal(
                f"`connect_schema`: column {name!r} has type {part.sql}, which Kafka Connect does not have: remove "
                f"the column, or convert it",
                query.outputs.get(name),
                field="connect_schema",
            )
        if name in query.sink.key and loses_time(type_):
            raise Refusal(
                f"`connect_schema`: the key column {name!r} is {type_.sql} with microseconds, but times in Kafka "
                f"Connect have milliseconds, so two keys could become equal: use UNIX_MICROS({name}), or another "
                f"number or text, as the key",
                query.outputs.get(name),
                field="connect_schema",
            )


def _check_append(query: Query) -> None:
    changing = updating(query.root)
    if changing is None:
        return
    # A Normalize does not appear in the SQL. The rows that expire are those of the table or operator below it.
    at = getattr(source(changing) if isinstance(changing, LogicalNormalize) else changing, "at", None)
    padded = isinstance(changing, LogicalJoin) and not changing.keeps_left
    if at is not None and (padded or isinstance(changing, LogicalLookup)):
        at = at.this
    raise Refusal(
        f"an append sink accepts only inserts, but {changing.changes}: {_REMEDIES[type(changing)](query, changing)}", at
    )


_MODE = "give the sink mode retract or upsert"


def _for_join(query: Query, join: LogicalJoin) -> str:
    return _MODE if join.keeps_left else f"write an INNER JOIN, or {_MODE}{_or_once(query)}"


def _for_aggregate(query: Query, _node: LogicalAggregate) -> str:
    return f"give the sink mode upsert with the group columns as key, or mode retract{_or_once(query)}"


def _for_rank(query: Query, rank: LogicalRank) -> str:
    return f"give the sink mode upsert or retract{_or_in_time(query, rank)}{_or_once(query)}"


def _for_over(query: Query, over: LogicalOver) -> str:
    return f"{_MODE}, or {_in_order_of_time(query, over)}"


def _for_session(query: Query, _node: LogicalSession) -> str:
    return f"{_MODE}{_or_once(query)}"


def _for_lookup(_query: Query, _node: LogicalLookup) -> str:
    both = "declare a `watermark` on both sides, so that each row is emitted once, when the watermark has passed it"
    return f"give the sink mode upsert or retract, or {both}"


def _for_expiry(_query: Query, _node: LogicalNormalize) -> str:
    return f"set `on_expire: forget`, or {_MODE}"


def _for_others(_query: Query, _node: LogicalNode) -> str:
    return _MODE


_REMEDIES: Mapping[type[LogicalNode], Callable[[Query, Any], str]] = {
    LogicalJoin: _for_join,
    LogicalAggregate: _for_aggregate,
    LogicalRank: _for_rank,
    LogicalOver: _for_over,
    LogicalSession: _for_session,
    LogicalLookup: _for_lookup,
    LogicalNormalize: _for_expiry,
    LogicalTemporalFilter: _for_others,
    LogicalScan: _for_others,
}
"""Remedies for rows that change, by the class of the lowest node that makes them change."""


def _or_in_time(query: Query, rank: LogicalRank) -> str:
    """Return advice on how a rank that is ordered by time can emit each row only once; empty for other ranks."""
    order = rank.order[:1]
    if not order or order[0].descending or event_times(rank.input.input).get(order[0].column or "") is None:
        return ""
    return f", or {_in_order_of_time(query, rank)}"


def _in_order_of_time(query: Query, over: LogicalOver | LogicalRank) -> str:
    """Return advice on how an Over or a rank can receive its rows in a final order."""
    first, once = over.order[0].column, ", so that each row is emitted once"
    if query.sink.emit == "changes":
        return f"remove `emit: changes`{once}"
    time = None if first is None else event_times(over.input.input).get(first)
    if time is None or over.order[0].descending:
        return f"start its ORDER BY with the time of a table that has a `watermark`, ascending{once}"
    marks = timed_tables(query.root)
    if any(each.table not in marks for each in time.origins):
        asked = " and ".join(f"`watermark: {each.column}` to table {each.table}" for each in sorted(time.origins))
        return f"add {asked}{once}"
    if any(mark.allowed_ms for mark in (table.watermark for table in marks.values()) if mark is not None):
        return f"remove `allowed_lateness` from the watermark{once}"
    return (
        "use only frames that look back, or ahead by RANGE and an INTERVAL (LEAD and ROWS … FOLLOWING wait for the "
        "next row, and no watermark says when it arrives)"
    )


def _or_once(query: Query) -> str:
    """Return advice on how rows of windows can be emitted only once; empty if there is no such advice."""
    if query.sink.emit == "changes" and final_at(query) is not None:
        return ", or remove `emit: changes`, so that each row is emitted once, when it is final"
    asked = " and ".join(f"`watermark: {each.column}` to table {each.table}" for each in without_watermark(query))
    if not asked and query.sink.emit != "changes" and has_sessions(query):
        return f", or {BY_THEIR_END}, so that each row is emitted once, when it is final"
    return f", or add {asked}, so that each row is emitted once, when it is final" if asked else ""


def _check_unique(query: Query) -> None:
    unique = unique_keys(query.root)
    if any(key <= set(query.sink.key) for key in unique):
        return
    found = " or ".join(f"({', '.join(key)})" for key in in_order(unique, query.root))
    raise Refusal(
        f"the sink's key ({', '.join(query.sink.key)}) does not identify a row of the result, "
        + (f"whose unique key is {found}: use that key" if found else "which has no unique key that the query selects")
        + ("" if found else _advice(query))
        + ". Or set `on_conflict` to `last` or `first`, to choose which of several rows with that key is kept",
        field="key",
    )


def _advice(query: Query) -> str:
    (below,) = inputs(query.root)
    keys = in_order(unique_keys(below), below)
    if not keys:
        return ": declare a primary_key for the tables, or give the sink mode retract"
    return f": select {' and '.join(keys[0])}, or give the sink mode retract"
