"""The names by which queries in DuckDB's SQL call the sinks and tables of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rowkind.operators.changelog import ChangelogMode
from rowkind.service.client.duckdb_columns import distinct_names
from rowkind.service.job.model import Job

DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True)
class JobTable:
    """A table that queries may name.

    - `kind`: where its rows come from. `of`: the name in the job file.
    - `topic`: the topic that is folded, empty if there is none. Such a table cannot be read.
    - `mode`: what the topic's records mean. `key`: the columns that identify a row, or none.
    """

    kind: Literal["sink", "table", "dead letters"]
    of: str
    topic: str
    mode: ChangelogMode
    key: tuple[str, ...] = ()


def job_tables(job: Job) -> Mapping[str, JobTable]:
    """Return the tables by name: sinks, then source tables, then the dead letters if the job has a topic for them.

    A table that has the name of a sink is called `<name>_source`. If two names differ only in case, the second one gets
    an underscore, because DuckDB ignores case.
    """
    sinks = [JobTable("sink", name, sink.topic, sink.mode, sink.key) for name, sink in job.sinks.items()]
    tables = [
        JobTable("table", name, table.topic, table.changelog, table.primary_key) for name, table in job.tables.items()
    ]
    taken = {sink.of.lower() for sink in sinks}
    names = [*job.sinks, *(f"{name}_source" if name.lower() in taken else name for name in job.tables)]
    found = dict(zip(distinct_names(names), [*sinks, *tables], strict=True))
    if job.dead_letters.topic is not None and DEAD_LETTERS not in {name.lower() for name in found}:
        found[DEAD_LETTERS] = JobTable("dead letters", DEAD_LETTERS, job.dead_letters.topic, "append")
    return found
