"""Which sinks of a job run in one query.

All of them do, but for those that are isolated, and for those that were added to a job that has been running: what is
there goes on from where it stands, and the new ones read their topics from the start, in a query of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rowkind.service.job.model import Job
from rowkind.service.plan.errors import PlanError, QueriesError
from rowkind.service.plan.fingerprint import Fingerprint
from rowkind.service.plan.passes.share_views import Kept
from rowkind.service.plan.pipeline import PlannedQuery, plan, plan_query

MAIN = "main"
"""The query of a job."""


def planned(
    job: Job,
    recorded: Mapping[str, tuple[Iterable[str], Kept]] | None = None,
    facts: Mapping[str, Fingerprint] | None = None,
) -> dict[str, PlannedQuery]:
    """The queries of a job by their names.

    `recorded` are the sinks of the queries whose checkpoints are there, and the views that they share; `facts` what
    each of the sinks is. Raises PlanError or JobError.
    """
    before = recorded or {}
    found = queries(job, {name: tuple(sinks) for name, (sinks, _) in before.items()})
    return {
        name: plan_query(job, sinks, before[name][1] if name in before else None, facts)
        for name, sinks in found.items()
    }


def planned_whole(job: Job) -> dict[str, PlannedQuery]:
    """As `planned`, but where sinks are refused all of them are told. Raises PlanError, QueriesError, JobError."""
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
    """The names of the sinks of each query. `recorded` are those of the queries whose checkpoints are there."""
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
    """A name for a query whose first sink is called so."""
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in names if each not in (MAIN, *taken))
