"""docs/metrics.md: all metrics, from their list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rowkind.service.execute.metrics import METRICS
from rowkind.service.monitoring.exposition import BUCKETS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

_HEAD = """# Metrics

This page is generated: `python -m generators`. `rowkind run` serves these metrics at `/metrics`,
in Prometheus' text format; nothing else is there. [alerts.md](alerts.md) has the alerts that rest on them, and
[deploy/grafana](../deploy/grafana) two dashboards.

- Every sample has **name**, the job's name: of a service with several jobs, `/metrics` has those of all.
- **query** is `main` unless a sink has a query of its own. What an operator does and keeps carries **sink**; one that
  several sinks share has the name of the first. **operator** is what `rowkind explain` calls it.
- **kind** is the row kind: `+I`, `-U`, `+U`, `-D`. Counters that an alert rests on are there from the start, with 0.
- What is counted in tasks is told when their batch has ended, and once, also if a task or a batch is done again.
"""


def page() -> str:
    """All of it."""
    return "\n".join([_HEAD, *_table()]) + "\n"


def _table() -> Iterator[str]:
    yield "| metric | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    for each in METRICS:
        yield f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(each.labels)} | {each.help} |"
    yield ""
    yield f"The buckets of histograms end at {', '.join(f'{bound:g}' for bound in BUCKETS)} seconds."
