"""`rowkind verify` after a round of chaos: DuckDB's results are those of the topics."""

from __future__ import annotations

from pathlib import Path

from rowkind.service.client.external_table import opened
from rowkind.service.job.load import load
from rowkind.service.verify.audit import audit


def audited(job: Path, servers: str) -> int:
    """Audit all sinks, and return how many rows are right. Fails if a row differs."""
    of = opened(load(job))
    assert of.kafka is not None, "the job has been opened"
    of = of.model_copy(update={"kafka": {**of.kafka, "bootstrap.servers": servers}})
    found = list(audit(of))
    assert not (wrong := [each for each in found if each.verdict == "differs"]), wrong
    return sum(each.compared.equal for each in found)
