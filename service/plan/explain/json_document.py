"""Descriptions as one JSON document. Its keys, listed in `KEYS`, stay as they are; new ones may come.

{"format": 1, "job": "shop", "views": {}, "queries": [{"name": "main", "stages": 1, …, "sinks": [{"name": "open",
    "kind": "sink", …, "inputs": [{"name": "join_1", "kind": "join", …, "state": [{"name": "left", …}], "goes": {…},
    "inputs": [{…}, {…}]}]}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rowkind.service.plan.explain.description import Description, QueryDescription, Step, StepState, Way

FORMAT = 1
KEYS = {
    "format": "of the document: the number of this format",
    "job": "of the document: the job's name",
    "views": "of the document: the job's views and their SQL",
    "queries": "of the document: what runs as one, with one source, one writer and one checkpoint",
    "sinks": "of a query: the plan of each sink, in the order of the job",
    "stages": "of a query: how many stages it has, each of which costs a shuffle",
    "tables": "of a query: the tables that it reads, each once",
    "name": "of a query, a sink, a step, a state, a column or a call",
    "kind": "sink, scan, join, semi_join, anti_join, aggregate, rank, deduplicate, session, over, asof_join, lookup, "
    "match, temporal_filter, stamp, normalize, expiry or union",
    "title": "what the step does, in one line, for people",
    "inputs": "the steps whose rows the step takes in, left before right; none where `same_as` says where they are",
    "same_as": "the sink and step under which the same step stands before: it is there once; else null",
    "sink": "of same_as: the sink",
    "step": "of same_as: the step",
    "stage": "the stage that the step runs in, from 1; null for scans, unions and sinks, which keep nothing",
    "state": "what the step keeps: name, of, layout, sub_key, calls, reason, ttl_ms, by_arrival",
    "of": "of a state: the table or the step whose rows it keeps",
    "layout": "of a state: `one row per key`, `unique key` (rows by key and sub_key), `multiset` (equal rows counted, "
    "or with a ttl one by one), `timed` (in the order of their times, until one of these comes), "
    "`values` (all different ones of its calls), `views` (of functions of the job), "
    "`top rows` (from 1 to the rank's last), `every row` or the `last rows` of a partition in order, `versions` (all "
    "rows that a key has had), `begun` (from the first row on that may begin a match), or `facts` (about all rows, on "
    "every shard)",
    "remade": "of a join: the inputs whose rows it does not keep, but makes anew of what the step below keeps",
    "sub_key": "of a state by unique key: what its rows of one key differ in",
    "reason": "of a state, a rank's strategy, a normalize or a join that is not where it is written: why, for people; "
    "null where that goes without saying",
    "ttl_ms": "of a state: milliseconds after the last change of a row at which it is forgotten, or by an expiry "
    "taken back, null for never",
    "by_arrival": "of a state: whether changes count in their order of arrival, and of those of a key the last",
    "closes": "of a state: the watermark that lets go of its rows, by clock and at, the time of a row",
    "at": "of closes: the time of a row that has to be passed",
    "clock": "of closes and of a temporal filter: whose watermark it is, or `the clock`, that of the batches",
    "goes": "how rows reach the next step: to, role, how, by, first_step, spread_over, copied_to; null for a sink",
    "to": "of goes: the next step",
    "role": "of goes: left, right, input, or fact: what a NOT IN must know of its right side as a whole",
    "how": "of goes: shuffled, same stage, every shard, or unmoved to the sink",
    "by": "of goes: the columns that rows are shuffled by; none where they all go to one shard",
    "spreadable": "of a join or a rank: inputs whose rows of one key the hint SKEW can spread",
    "spread_over": "of goes: to how many shards the rows of one key are dealt out, null for one",
    "copied_to": "of goes: to how many shards each row goes, null for one",
    "first_step": "of goes: what each task does to its rows before they are shuffled: added up, ranked, or null",
    "mode": "of a sink or of what a step emits: append, retract or upsert",
    "needs_old_rows": "whether somebody further down needs the -U of updates",
    "refreshes": "whether the step passes on which rows were written again, because a step further down has a TTL",
    "columns": "the columns that the step emits, each with name and type",
    "type": "of a column: its SQL type",
    "unique_keys": "sets of columns that identify at most one row of what the step emits",
    "upsert_key": "the columns by which updates stay in order",
    "partition_key": "what rows that share a shard are equal in; none for scans, and where there is one shard",
    "fixes": "of a sink: what its rows share a shard by, where its key does not name that but fixes it for good",
    "filter": "the condition on the rows that the step emits, or that are expanded",
    "functions": "the functions of the job's that the step calls at its exit, and where each is",
    "expands": "what makes several rows of one at the exit of the step, one after the other and before its filter",
    "elements_of": "of expands: what has the elements, for each of which there is a row",
    "elements_where": "of expands: the condition of LEFT JOIN on elements; others count as if they were not there",
    "outer": "of expands: whether a row without elements stays, with NULLs",
    "filter_deletes": "true where a row that fails the filter goes on as a delete of its key",
    "drops_null_keys": "true where rows with a NULL in the next step's key are dropped, because they match nothing",
    "computes": "the columns that are computed, each with its expression",
    "digested": "of a scan: true where its rows are told apart by a digest of all columns, which comes with the others",
    "reads": "of a scan: the columns that somebody reads, each with name and type",
    "table": "of a scan: the table",
    "topic": "of a scan or a sink: the topic",
    "alias": "of a scan: what the query calls the table",
    "table_mode": "of a scan: the table's mode",
    "primary_key": "of a scan: the table's primary key",
    "exact": "of a scan: whether the producer promises an exact changelog",
    "values": "of a scan: how its topic's values are written, where it is not framed Avro: avro, plain_avro or json",
    "debezium": "of a scan: whether values are Debezium's envelopes, as above",
    "watermark": "of a scan: that of its table",
    "column": "of a watermark: the column that it is of, or the expression",
    "delay_ms": "of a watermark: how far it is behind the latest time, where that is the same for all rows",
    "idle_ms": "of a watermark: for how long a partition without rows holds it back",
    "late": "of a watermark: what becomes of rows that come too late, drop or dead_letter",
    "allowed_lateness_ms": "of a watermark: how much longer state is kept, and late rows are taken",
    "join": "of a join: inner, left, right, full, semi, anti or not in",
    "on": "of a join: its equal keys; of an asof_join also how times compare",
    "versions": "of an asof_join: whether its right side is a table with a key, whose rows count one after the other",
    "condition": "of a join: what matches must fulfil besides; of a rank: what rows in its range must",
    "begins": "of a temporal filter: the time of a row from which on it is in the result, null for always",
    "ends": "of a temporal filter: the time of a row until which it is in the result, null for ever",
    "group_by": "of an aggregate: its group columns",
    "calls": "of an aggregate: its calls, each with name and sql; none for DISTINCT; of a state: the calls it is for",
    "fact": "of an aggregate that a NOT IN needs: what is asked of all rows, `rows` or `nulls`",
    "sql": "of a sink: its query; of a call: the call",
    "function": "of a rank: row_number, rank or dense_rank",
    "first": "of a rank: the first number that is kept",
    "last": "of a rank: the last number that is kept, null where there is no upper bound",
    "bound": "of a rank without an upper bound: the column up to which a partition is read, the same in all its rows",
    "settled": "of a rank without an upper bound: the number above which nobody tells numbers apart",
    "number": "of a rank: the column with the number by its function, null where nobody reads it",
    "numbers": "of a rank: its columns with numbers, where they are by other functions, each with name and function",
    "partition_by": "of a rank: its partition",
    "order_by": "of a rank: its order, of a temporal filter: that in which rows come; `arrival` for that of arrival",
    "strategy": "of a rank: append, improving or retract",
    "ties": "of a rank: `latest first` where the later arrival of equal rows counts",
    "time": "of a session: the column with the time of a row",
    "gap": "of a session: how far apart two of its rows may be",
    "pattern": "of a match: the pattern, as written",
    "all_rows": "of a match: whether all rows of each match come out, and not one",
    "within": "of a match: in what time it must be; not there for any time",
    "define": "of a match: the condition of each variable, null for one that is always true",
    "measures": "of a match: what its measures ask of it",
    "skip": "of a match: where the search goes on behind one",
    "key": "of a sink: its key",
    "delivery": "of a sink: exactly_once or at_least_once",
    "advice": "of a sink: what could be cheaper or is to be watched: about, code and text",
    "about": "of a piece of advice: the step",
    "code": "of a piece of advice: which one it is",
    "text": "of a piece of advice: what to know and what to do, for people",
}
PROSE = ("title", "reason", "text")
"""The keys whose values are sentences: their wording may change with any release."""


def document(job: str, views: Mapping[str, str], queries: Sequence[QueryDescription]) -> str:
    """The document with the plans of these queries."""
    whole = {"format": FORMAT, "job": job, "views": dict(views), "queries": [_query(each) for each in queries]}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _query(query: QueryDescription) -> dict[str, Any]:
    sinks = [_sink(each) for each in query.sinks]
    return {"name": query.name, "stages": query.stages, "tables": list(query.tables), "sinks": sinks}


def _sink(description: Description) -> dict[str, Any]:
    advice = [{"about": each.about, "code": each.code, "text": each.text} for each in description.advice]
    return {**_step(description.root), "sql": description.sql, "advice": advice}


def _step(step: Step) -> dict[str, Any]:
    said = {key: value for fact in step.facts for key, value in fact.values.items()}
    return {
        "name": step.name,
        "kind": step.kind,
        "title": step.title,
        "stage": step.stage,
        "same_as": None if step.same_as is None else dict(zip(("sink", "step"), step.same_as, strict=True)),
        **step.values,
        **said,
        "state": [_state(each) for each in step.state],
        "goes": None if step.way is None else _way(step.way),
        "inputs": [_step(each) for each in step.inputs],
    }


def _state(state: StepState) -> dict[str, Any]:
    return {
        "name": state.name,
        **state.values,
        "reason": state.reason,
        "ttl_ms": state.ttl_ms,
        "by_arrival": bool(state.order),
    }


def _way(way: Way) -> dict[str, Any]:
    return {
        "to": way.to,
        "role": way.role,
        "how": way.how,
        "by": list(way.by),
        "first_step": way.first_step,
        "spread_over": way.spread_over,
        "copied_to": way.copied_to,
    }
