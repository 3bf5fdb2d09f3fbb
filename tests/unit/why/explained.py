"""Answer `rowkind why` over changes in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.trial import read
from rowkind.service.why.answer import RowExplanation, answer
from rowkind.service.why.sources import TablesInMemory
from rowkind.service.why.wanted import wanted
from tests.trying import Tables, job


def explained(
    folder: Path, tables: Tables, changes: Sequence[Mapping[str, Any]], sql: str, key: str, sink: Mapping[str, Any]
) -> tuple[PhysicalSink, RowExplanation]:
    """Return the plan and the answer."""
    of = job(folder, sql, tables, sink=sink)
    planned = plan(of, "o")
    batches = read(of, map(json.dumps, changes), "changes.jsonl", 1)
    return planned, answer(planned, wanted(planned, key.split()), TablesInMemory(batches), now=1)


def named(found: RowExplanation) -> dict[str, list[int]]:
    """Return the line numbers of the source rows that an answer names."""
    return {table: sorted((of.rows.seq >> 16).tolist()) for table, of in found.sources.items() if len(of.rows)}
