"""Assigns a job's sinks to queries.

All sinks share one query, except isolated sinks and sinks added to a job that has already run. Existing sinks continue
from their position. New sinks read their topics from the start, in a separate query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rowkind.service.job.model import Job
from rowkind.service.plan.errors import PlanError, QueriesError
from rowkind.service.plan.fingerprint import Fingerprint
from rowkind.service.plan.passes.share_views import Kept
from rowkind.service.plan.pipeline import PlannedQuery, plan, plan_query

MAIN = "main"
"""The name of a job's main query."""


def planned(
    job: Job,
    recorded: Mapping[str, tuple[Iterable[str], Kept]] | None = None,
    facts: Mapping[str, Fingerprint] | None = None,
) -> dict[str, PlannedQuery]:
    """Return a job's queries by name.

    `recorded` maps each query with a checkpoint to its sinks and the views that they share. `facts` maps each sink to
    its fingerprint. Raises PlanError or JobError.
    """
    before = recorded or {}
    found = queries(job, {name: tuple(sinks) for name, (sinks, _) in before.items()})
    return {
        name: plan_query(job, sinks, before[name][1] if name in before else None, facts)
        for name, sinks in found.items()
    }


def planned_whole(job: Job) -> dict[str, PlannedQuery]:
    """Plan as `planned` does, but report every sink whose plan fails. Raises PlanError, QueriesError or JobError."""
    try:
        return planned(job)
    except PlanError as error:
        found = {str(each): each for each in _refusals(job)}
        if len(found) < 2 or str(error) not in found:
            raise
        raise QueriesError(tuple(found.values())) from None


def _refusals(job: Job) -> Iterator[PlanError]:
    for sink in job.sinks:
        try:
            plan(job, sink)
        except PlanError as error:
            yield error


def queries(job: Job, recorded: Mapping[str, Sequence[str]] | None = None) -> dict[str, list[str]]:
    """Return the sink names of each query. `recorded`: the sink names of each query that has a checkpoint."""
    before = recorded or {}
    found: dict[str, list[str]] = {}
    added = ""
    for sink, settings in job.sinks.items():
        query = next((query for query, sinks in before.items() if sink in sinks), "")
        if not query and settings.isolated:
            query = _new(sink, [*before, *found])
        elif not query:
            query = added = added or (_new(sink, [*before, *found]) if MAIN in before else MAIN)
        found.setdefault(query, []).append(sink)
    return found


def _new(name: str, taken: Sequence[str]) -> str:
    """Return an unused name for a query whose first sink is `name`."""
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in (MAIN, *taken))
