"""Generate docs/reference/metrics.md, the reference of all metrics, from their list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rowkind.service.execute.metrics import METRICS
from rowkind.service.monitoring.exposition import BUCKETS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "metrics.md"

_HEAD = """# Metrics

This page is generated: `python -m generators`. `rowkind run` serves these metrics, and no others, at `/metrics`, in
Prometheus's text format. [Alerts](alerts.md) explains the alerts that use them, and
[deploy/grafana](../../deploy/grafana) has two dashboards.

- Every sample has the label **name**, the job's name. In a multi-job service, `/metrics` has the metrics of all jobs.
- **query** is the name of the query: `main` unless a sink has a query of its own.
- **sink** is the name of the sink to which records are written, or to which an operator belongs. If several sinks share
  an operator, it is the first of them.
- **operator** is the operator's name in `rowkind explain`.
- **kind** is the row kind: `+I`, `-U`, `+U`, `-D`.
- Counters that an alert uses exist from the start, with the value 0.
- What tasks count is added once, at the end of their batch, even if a task or a batch is repeated.
"""


def page() -> str:
    """Return the current text of the page."""
    return "\n".join([_HEAD, *_table()]) + "\n"


def _table() -> Iterator[str]:
    yield "| metric | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    for each in METRICS:
        yield f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(each.labels)} | {each.help} |"
    yield ""
    yield f"The upper bounds of histogram buckets are {', '.join(f'{bound:g}' for bound in BUCKETS)} seconds."
