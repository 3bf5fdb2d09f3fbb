"""Descriptions as one JSON document. `explain.values` and the classes here declare and document its keys.

{"format": 1, "job": "shop", "views": {}, "queries": [{"name": "main", "stages": 1, …, "sinks": [{"name": "open",
    "kind": "sink", …, "inputs": [{"name": "join_1", "kind": "join", …, "state": [{"name": "left", …}], "goes": {…},
    "inputs": [{…}, {…}]}]}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rowkind.service.plan.explain.description import Description, QueryDescription, Step, StepState, Way
from rowkind.service.plan.explain.values import Advice, as_json

FORMAT = 1
PROSE = ("title", "reason", "text")
"""The keys whose values are sentences: their wording may change with any release."""
JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class DocumentKeys:
    """The document."""

    format: Annotated[int, "the number of this format"]
    job: Annotated[str, "the job's name"]
    views: Annotated[Mapping[str, str], "the job's views and their SQL"]
    queries: Annotated[Sequence[JsonObject], "what runs as one, with one source, one writer and one checkpoint"]


@dataclass(frozen=True)
class QueryKeys:
    """A query."""

    name: Annotated[str, "its name"]
    stages: Annotated[int, "how many stages it has, each of which costs a shuffle"]
    tables: Annotated[Sequence[str], "the tables that it reads, each once"]
    sinks: Annotated[Sequence[JsonObject], "the plan of each sink, in the order of the job"]


@dataclass(frozen=True)
class SameAs:
    """Where a step is described."""

    sink: Annotated[str, "the sink in whose plan it is"]
    step: Annotated[str, "its name there"]


@dataclass(frozen=True)
class StepHead:
    """Every step, a sink included."""

    name: Annotated[str, "its name"]
    kind: Annotated[str, "what it is"]
    title: Annotated[str, "what it does, in one line, for people"]
    stage: Annotated[
        int | None,
        "the stage that it runs in, from 1; null for scans, unions and sinks, which keep nothing",
    ]
    same_as: Annotated[SameAs | None, "where the same step is described before: it is there once; null if it is not"]


@dataclass(frozen=True)
class StepTail:
    """Every step, a sink included, after the keys of its kind."""

    state: Annotated[Sequence[JsonObject], "what it keeps"]
    goes: Annotated[Way | None, "how its rows reach the next step; null for a sink"]
    inputs: Annotated[
        Sequence[JsonObject], "the steps whose rows it takes in, left before right; none if `same_as` has them"
    ]


@dataclass(frozen=True)
class SinkTail:
    """A sink."""

    sql: Annotated[str, "its query"]
    advice: Annotated[Sequence[Advice], "what could be cheaper or is to be watched"]


@dataclass(frozen=True)
class StateHead:
    """A state."""

    name: Annotated[str, "what the operator calls it"]


@dataclass(frozen=True)
class StateTail:
    """A state."""

    reason: Annotated[str | None, "why its rows are kept like that, for people; null where that goes without saying"]
    ttl_ms: Annotated[
        int | None,
        "milliseconds after its last change until a row is dropped or retracted, null for never",
    ]
    by_arrival: Annotated[bool, "whether changes count in their order of arrival, and of those of a key the last"]


def document(job: str, views: Mapping[str, str], queries: Sequence[QueryDescription]) -> str:
    """The document with the plans of these queries."""
    whole = DocumentKeys(FORMAT, job, views, list(map(_query, queries)))
    return json.dumps(as_json(whole), indent=2, ensure_ascii=False)


def _query(query: QueryDescription) -> JsonObject:
    return _object(QueryKeys(query.name, query.stages, query.tables, list(map(_sink, query.sinks))))


def _sink(description: Description) -> JsonObject:
    return {**_step(description.root), **_object(SinkTail(description.sql, description.advice))}


def _step(step: Step) -> JsonObject:
    same_as = None if step.same_as is None else SameAs(*step.same_as)
    head = StepHead(step.name, step.kind, step.title, step.stage, same_as)
    return _object(head, *step.values, StepTail(list(map(_state, step.state)), step.way, list(map(_step, step.inputs))))


def _state(state: StepState) -> JsonObject:
    return _object(StateHead(state.name), state.values, StateTail(state.reason, state.ttl_ms, bool(state.order)))


def _object(*parts: Any) -> JsonObject:
    """One object of the keys of several values."""
    return {name: value for part in parts for name, value in as_json(part).items()}
