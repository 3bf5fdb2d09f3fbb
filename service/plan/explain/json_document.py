"""Renders descriptions as one JSON document. `explain.values` and the classes below declare and document its keys.

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
"""The keys whose values are prose. Their wording may change in any release."""
JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class DocumentKeys:
    """The whole document."""

    format: Annotated[int, "the version of this format"]
    job: Annotated[str, "the job's name"]
    views: Annotated[Mapping[str, str], "the job's views and their SQL"]
    queries: Annotated[
        Sequence[JsonObject], "each query, which runs as one unit with one source, one writer and one checkpoint"
    ]


@dataclass(frozen=True)
class QueryKeys:
    """A query."""

    name: Annotated[str, "the query's name"]
    stages: Annotated[int, "the number of its stages, each of which costs a shuffle"]
    tables: Annotated[Sequence[str], "the tables that the query reads, without duplicates"]
    sinks: Annotated[Sequence[JsonObject], "the plan of each sink, in the order of the job file"]


@dataclass(frozen=True)
class SameAs:
    """Where a step is described."""

    sink: Annotated[str, "the sink whose plan contains the step"]
    step: Annotated[str, "the step's name in that plan"]


@dataclass(frozen=True)
class StepHead:
    """Every step, including sinks."""

    name: Annotated[str, "the step's name"]
    kind: Annotated[str, "the step's kind"]
    title: Annotated[str, "what the step does, in one line of prose"]
    stage: Annotated[
        int | None,
        "the stage in which the step runs, from 1; null for scans, unions and sinks, which keep no state",
    ]
    same_as: Annotated[
        SameAs | None, "the earlier description of the same step, which runs only once; null if there is none"
    ]


@dataclass(frozen=True)
class StepTail:
    """Every step, including sinks, after the keys of the step's kind."""

    state: Annotated[Sequence[JsonObject], "the state that the step keeps"]
    goes: Annotated[Way | None, "how the step's rows reach the next step; null for a sink"]
    inputs: Annotated[
        Sequence[JsonObject],
        "the steps whose rows the step reads, left before right; empty if they are described at `same_as`",
    ]


@dataclass(frozen=True)
class SinkTail:
    """A sink."""

    sql: Annotated[str, "the sink's query"]
    advice: Annotated[Sequence[Advice], "possible savings and risks"]


@dataclass(frozen=True)
class StateHead:
    """A state."""

    name: Annotated[str, "the operator's name for the state"]


@dataclass(frozen=True)
class StateTail:
    """A state."""

    reason: Annotated[str | None, "why the rows are kept in this way, in prose; null if the reason is obvious"]
    ttl_ms: Annotated[
        int | None,
        "the milliseconds after its last change at which a row is dropped or retracted; null for never",
    ]
    by_arrival: Annotated[
        bool, "whether changes are applied in order of arrival, so that the latest change of a key counts"
    ]


def document(job: str, views: Mapping[str, str], queries: Sequence[QueryDescription]) -> str:
    """Return the JSON document with the plans of the given queries."""
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
    """Return one JSON object with the keys of all given parts."""
    return {name: value for part in parts for name, value in as_json(part).items()}
