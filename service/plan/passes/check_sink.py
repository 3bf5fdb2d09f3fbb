"""What a sink asks of its query.

append    a result that is never updated or deleted from
upsert    a key that is a unique key of the result and never NULL
retract   nothing; a key, if there is one, only names the columns of the topic's key
"""

from __future__ import annotations

from rowkind.avro.connect_schema import loses_time, without_form
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalJoin,
    LogicalLookup,
    LogicalNormalize,
    LogicalOver,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalTemporalFilter,
)
from rowkind.service.plan.passes.close_inputs import timed_tables
from rowkind.service.plan.passes.hold_back import BY_THEIR_END, final_at, has_sessions, without_watermark
from rowkind.service.plan.query import Query
from rowkind.service.plan.sql.scope import near
from rowkind.service.plan.traits.aliases import source
from rowkind.service.plan.traits.changelog_modes import updating
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.tree import inputs


def check_sink(query: Query) -> Query:
    """The query unchanged. Raises Refusal."""
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
                    f"the key column {column!r} may be NULL, and a row whose key is NULL cannot be replaced: leave "
                    f"such rows out by WHERE {column} IS NOT NULL, write COALESCE({column}, …) AS {column}, or give "
                    f"the sink mode retract",
                    query.outputs[column],
                    field="key",
                )
    return query


def _check_connect(query: Query) -> None:
    for name, type_ in columns(query.root).items():
        if (part := without_form(type_)) is not None:
            raise Refusal(
                f"`connect_schema`: column {name!r} has type {part.sql}, which Kafka Connect does not have: leave the "
                f"column out, or convert it",
                query.outputs.get(name),
                field="connect_schema",
            )
        if name in query.sink.key and loses_time(type_):
            raise Refusal(
                f"`connect_schema`: the key column {name!r} is {type_.sql} with microseconds, and the times of Kafka "
                f"Connect have milliseconds, so that two keys could become one: write UNIX_MICROS({name}), or another "
                f"number or text, as the key",
                query.outputs.get(name),
                field="connect_schema",
            )


def _check_append(query: Query) -> None:
    match updating(query.root):
        case None:
            return
        case LogicalJoin(kind="anti" | "not in") as join:
            raise Refusal(
                "an append sink takes inserts only, but a row without a match is taken back once a match comes: give "
                "the sink mode retract or upsert",
                join.at,
            )
        case LogicalJoin(keeps_left=True) as join:
            raise Refusal(
                "an append sink takes inserts only, but what this subquery answers changes once a match comes: "
                "give the sink mode retract or upsert",
                join.at,
            )
        case LogicalAggregate() as aggregate:
            raise Refusal(
                "an append sink takes inserts only, but the row of a group changes with every row that comes to it: "
                f"give the sink mode upsert with the group as key, or retract{_or_once(query)}",
                aggregate.at,
            )
        case LogicalRank() as rank:
            raise Refusal(
                "an append sink takes inserts only, but a row leaves the range when another one takes its place: give "
                f"the sink mode upsert or retract{_or_in_time(query, rank)}{_or_once(query)}",
                rank.at,
            )
        case LogicalTemporalFilter() as passing:
            raise Refusal(
                "an append sink takes inserts only, but a row leaves the result when its time is over: give the sink "
                "mode retract or upsert",
                passing.at,
            )
        case LogicalOver() as over:
            raise Refusal(
                "an append sink takes inserts only, but a row that comes between others changes what OVER gives them: "
                f"give the sink mode retract or upsert, or {_in_order_of_time(query, over)}",
                over.at,
            )
        case LogicalSession() as session:
            raise Refusal(
                "an append sink takes inserts only, but a row may make two sessions one: give the sink mode "
                f"retract or upsert{_or_once(query)}",
                session.at,
            )
        case LogicalJoin() as join:
            raise Refusal(
                f"an append sink takes inserts only, but this {join.kind.upper()} JOIN takes back the row padded with "
                f"NULLs once a match comes: write an INNER JOIN, or give the sink mode retract or upsert"
                f"{_or_once(query)}",
                join.at.this,
            )
        case LogicalLookup() as lookup:
            raise Refusal(
                "an append sink takes inserts only, but a row that comes late may be nearer in time than the one that "
                "has been met: give the sink mode upsert or retract, or both sides a `watermark`, and each row goes "
                "out once, when it has passed",
                lookup.at.this,
            )
        case LogicalNormalize(takes_back=True) as expiry:
            raise Refusal(
                "an append sink takes inserts only, but rows are taken back here when they expire, because of "
                "`on_expire: retract`: say `on_expire: forget`, or give the sink mode retract or upsert",
                getattr(source(expiry), "at", None),
            )
        case LogicalScan() as scan:
            raise Refusal(
                f"an append sink takes inserts only, but {scan.source.table} is a table with mode {scan.source.mode}, "
                f"whose rows change: give the sink mode retract or upsert",
                scan.at,
            )
        case other:
            raise AssertionError(f"{type(other).__name__} says nothing of why it updates")


def _or_in_time(query: Query, rank: LogicalRank) -> str:
    """How the rows of a rank by a time would come once."""
    order = rank.order[:1]
    if not order or order[0].descending or event_times(rank.input.input).get(order[0].column or "") is None:
        return ""
    return f", or {_in_order_of_time(query, rank)}"


def _in_order_of_time(query: Query, over: LogicalOver | LogicalRank) -> str:
    """How an Over would get its rows in an order that is final."""
    first, once = over.order[0].column, ", and each row comes once"
    if query.sink.emit == "changes":
        return f"leave out `emit: changes`{once}"
    time = None if first is None else event_times(over.input.input).get(first)
    if time is None or over.order[0].descending:
        return f"begin its ORDER BY with the time of a table that has a `watermark`, ascending{once}"
    marks = timed_tables(query.root)
    if any(each.table not in marks for each in time.origins):
        asked = " and ".join(f"`watermark: {each.column}` to the table {each.table}" for each in sorted(time.origins))
        return f"give {asked}{once}"
    if any(mark.allowed_ms for mark in (table.watermark for table in marks.values()) if mark is not None):
        return f"leave `allowed_lateness` out of the watermark{once}"
    return (
        "let it look back, or ahead by RANGE and an INTERVAL: when the next row comes, for which LEAD and ROWS wait, "
        "no watermark says"
    )


def _or_once(query: Query) -> str:
    """How the rows would come once, where they are of windows."""
    if query.sink.emit == "changes" and final_at(query) is not None:
        return ", or leave out `emit: changes`, and each row comes once, when it is final"
    asked = " and ".join(f"`watermark: {each.column}` to the table {each.table}" for each in without_watermark(query))
    if not asked and query.sink.emit != "changes" and has_sessions(query):
        return f", or {BY_THEIR_END}, and each row comes once, when it is final"
    return f", or give {asked}, and each row comes once, when it is final" if asked else ""


def _check_unique(query: Query) -> None:
    unique = unique_keys(query.root)
    if any(key <= set(query.sink.key) for key in unique):
        return
    found = " or ".join(f"({', '.join(key)})" for key in in_order(unique, query.root))
    raise Refusal(
        f"the sink's key ({', '.join(query.sink.key)}) does not identify a row of the result, "
        + (f"whose unique key is {found}: use that one" if found else "which has no unique key that the query selects")
        + ("" if found else _advice(query))
        + ". Or say with `on_conflict: last` or `first` which of several rows with that key stands",
        field="key",
    )


def _advice(query: Query) -> str:
    (below,) = inputs(query.root)
    keys = in_order(unique_keys(below), below)
    if not keys:
        return ": give the tables a primary_key, or the sink mode retract"
    return f": select {' and '.join(keys[0])}, or give the sink mode retract"
