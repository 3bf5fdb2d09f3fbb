"""Run `rowkind try --fold` in this process and return its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.trial import Engine, end, in_memory, read, results

Change = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Any]]


def folded(
    folder: Path,
    sql: str,
    tables: Tables,
    changes: Iterable[Change],
    *,
    sink: Mapping[str, Any] | None = None,
    batch_rows: int = 1,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Return the rows that are left of a query at the end of the input; `settings` are further settings of the job.

    Raises PlanError and JobError if the job is refused, and ExpressionError.
    """
    return outcome(job(folder, sql, tables, sink=sink, **settings), changes, batch_rows)


def job(folder: Path, sql: str, tables: Tables, *, sink: Mapping[str, Any] | None = None, **settings: Any) -> Job:
    """Return a job with one query. Raises JobError."""
    document = {
        "job": "tried",
        "tables": {name: {"topic": name} | dict(table) for name, table in tables.items()},
        "sinks": {"o": {"sql": sql} | dict(sink or {"mode": "retract"})},
    }
    file = folder / "job.yaml"
    file.write_text(json.dumps(document | settings))
    return load(file)


def outcome(job: Job, changes: Iterable[Change], batch_rows: int, engine: Engine | None = None) -> list[dict[str, Any]]:
    """Return the rows that are left at the end; without an `engine`, the end of the changes ends the input."""
    batches = read(job, map(json.dumps, changes), "changes.jsonl", batch_rows)
    planned = plan(job, "o")
    if engine is None:
        end(planned, batches)
    rows = results(job, planned, batches, engine or in_memory(print), fold=True)
    return [each["row"] for each in rows]


def inserts(table: str, rows: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Return changes that insert rows into a table."""
    return [{"table": table, "op": "+I", "row": dict(row)} for row in rows]
