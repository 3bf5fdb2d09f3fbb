"""Determines which of a job's checkpoints can be kept after the job has changed.

A sink stays in its query, with the other sinks that stay, if the plan facts on which its state depends are unchanged
(`service.plan.fingerprint`). All other sinks are rebuilt: in a new query, or in the query of the same name if that has
no other sinks left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rowkind.service.checkpoint.checkpoint_metadata import Contents
from rowkind.service.checkpoint.job_digest import asked
from rowkind.service.job.model import Job
from rowkind.service.physical.graph import Graph, graph
from rowkind.service.plan.fingerprint import Fingerprint, differences, fingerprint
from rowkind.service.plan.pipeline import PlannedQuery
from rowkind.service.query.queries import planned
from rowkind.service.query.topics import PlannedQueries
from rowkind.service.spark.placement import usual
from rowkind.version import version

TWICE = "STATE_TTL: two operators would need separate copies of the state that they share in the checkpoint"


@dataclass(frozen=True)
class Upgrade:
    """The outcome of an upgrade for the queries of a job.

    - `queries`: the queries after the upgrade. Those in `stay` continue from a checkpoint.
    - `changes`: the facts that differ, for each rebuilt sink, one per line.
    - `left`: the queries that lose some or all of their sinks. Their previous runs are fenced.
    - `dropped`: the queries whose checkpoints are no longer needed.
    """

    queries: PlannedQueries
    stay: frozenset[str]
    changes: Mapping[str, tuple[str, ...]]
    left: frozenset[str]
    dropped: frozenset[str]


def contents(job: Job, query: PlannedQuery, before: Contents | None = None) -> tuple[Graph, Contents]:
    """Return a query's graph and its checkpoint's metadata. `before`: the metadata from which it continues, if any."""
    whole = graph(query.sinks)
    wanted = Contents(
        sinks={sink.name: fingerprint(sink) for sink in query.sinks},
        shards=_shards(job, before),
        parallelism=job.parallelism,
        levels=whole.levels,
        exchange=whole.exchange,
        atomic=job.atomic,
        views={view: sorted(columns) for view, columns in query.views.items()},
        states=whole.states,
        release=version(),
        asked={sink.name: asked(job, sink) for sink in query.sinks},
    )
    if before is None:
        return whole, wanted
    wanted = wanted.after(before)
    return graph(query.sinks, wanted.levels, exchange=wanted.exchange, states=wanted.states), wanted


def _shards(job: Job, before: Contents | None) -> int:
    """Return the job's number of shards. The default is the existing number if it is large enough."""
    if job.shards is None and before is not None and before.shards >= job.parallelism:
        return before.shards
    return job.shards or usual(job.parallelism)


def doubled(whole: Graph) -> bool:
    """Return whether two operators would use the same state, because they shared one state when it was written."""
    return len({each.state for each in whole.operators}) < len(whole.operators)


def changed(job: Job, query: PlannedQuery, before: Contents) -> dict[str, tuple[str, ...]]:
    """Return the differences from a checkpoint, by sink. Differences that affect all sinks are repeated for each."""
    whole, wanted = contents(job, query, before)
    everywhere = differences(before.common, wanted.common)
    found = {name: (*everywhere, *wanted.changes(before, name)) for name in wanted.sinks}
    changes = {name: lines for name, lines in found.items() if lines}
    # A changed sink's states keep their names, even if other operators no longer share these states.
    if not changes and doubled(whole):
        return dict.fromkeys(wanted.sinks, (TWICE,))
    return changes


def upgrade(job: Job, recorded: Mapping[str, Contents], *, keep: bool = True) -> Upgrade:
    """Plan the upgrade of the queries whose checkpoints are `recorded`. If `keep` is false, no checkpoint is kept.

    Raises PlanError or JobError.
    """
    here = {name: replace(each, sinks=_those_in(job, each)) for name, each in recorded.items()}
    staying = {name: each for name, each in here.items() if each.sinks} if keep else {}
    changes: dict[str, tuple[str, ...]] = {}
    while True:
        queries = planned(job, {name: each.planned_by for name, each in staying.items()}, sinks_of(staying))
        found = {
            sink: lines for name, each in staying.items() for sink, lines in changed(job, queries[name], each).items()
        }
        if not found:
            break
        changes |= found
        left = {
            name: {sink: facts for sink, facts in each.sinks.items() if sink not in found}
            for name, each in staying.items()
        }
        staying = {name: replace(each, sinks=left[name]) for name, each in staying.items() if left[name]}
    return Upgrade(
        queries,
        frozenset(staying),
        changes,
        frozenset(name for name, each in here.items() if name not in staying or each.sinks != staying[name].sinks),
        frozenset(name for name in here if name not in staying and (not keep or here[name].sinks)),
    )


def sinks_of(recorded: Mapping[str, Contents]) -> dict[str, Fingerprint]:
    """Return the facts of all sinks in the checkpoints."""
    return {sink: facts for each in recorded.values() for sink, facts in each.sinks.items()}


def _those_in(job: Job, recorded: Contents) -> Mapping[str, Fingerprint]:
    return {sink: facts for sink, facts in recorded.sinks.items() if sink in job.sinks}
