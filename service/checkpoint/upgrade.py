"""What of a job's checkpoints can stay, now that the job says something else.

A sink stays with its query if every fact of its plan that state depends on is what it was (`service.plan.fingerprint`),
beside the others that stay. The rest is rebuilt: in a query of its own, or in that of the same name if nothing else is
left of it.
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

TWICE = "STATE_TTL: what was kept once would have to be kept twice"


@dataclass(frozen=True)
class Upgrade:
    """What becomes of the queries of a job.

    - `queries`: those that there will be. Of them `stay` have a checkpoint that goes on.
    - `changes`: of sinks that are rebuilt the facts that differ, one a line.
    - `left`: the queries that lose some of their sinks, or all; what they have written so far is taken over.
    - `dropped`: those whose checkpoint nobody needs any more.
    """

    queries: PlannedQueries
    stay: frozenset[str]
    changes: Mapping[str, tuple[str, ...]]
    left: frozenset[str]
    dropped: frozenset[str]


def contents(job: Job, query: PlannedQuery, before: Contents | None = None) -> tuple[Graph, Contents]:
    """The graph of a query and what its checkpoint is of, which goes on from what was there `before`."""
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
    """As many as the job says, or as there are, if they are enough."""
    if job.shards is None and before is not None and before.shards >= job.parallelism:
        return before.shards
    return job.shards or usual(job.parallelism)


def doubled(whole: Graph) -> bool:
    """Whether two operators would have one state, which they shared when it was written."""
    return len({each.state for each in whole.operators}) < len(whole.operators)


def changed(job: Job, query: PlannedQuery, before: Contents) -> dict[str, tuple[str, ...]]:
    """What differs from what a checkpoint is of, by sink; what concerns the query as a whole is that of every sink."""
    whole, wanted = contents(job, query, before)
    everywhere = differences(before.common, wanted.common)
    found = {name: (*everywhere, *wanted.changes(before, name)) for name in wanted.sinks}
    changes = {name: lines for name, lines in found.items() if lines}
    # Of a sink that has changed the states have the names that they had, beside others that share them no more.
    if not changes and doubled(whole):
        return dict.fromkeys(wanted.sinks, (TWICE,))
    return changes


def upgrade(job: Job, recorded: Mapping[str, Contents], *, keep: bool = True) -> Upgrade:
    """What becomes of the queries whose checkpoints are `recorded`; nothing of them stays unless `keep`.

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
    """The facts of all sinks that checkpoints are of."""
    return {sink: facts for each in recorded.values() for sink, facts in each.sinks.items()}


def _those_in(job: Job, recorded: Contents) -> Mapping[str, Fingerprint]:
    return {sink: facts for sink, facts in recorded.sinks.items() if sink in job.sinks}
