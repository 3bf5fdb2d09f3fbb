"""Renders a job's plans for people and programs (`rowkind explain`).

For every step, the output shows which kinds of changes the step emits, and under which keys. For a step with state, it
also shows the state's layout, how long rows are kept, and why. The plan is described once, and every format is rendered
from that description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.explain.display_names import with_display_names
from rowkind.service.plan.explain.html import page
from rowkind.service.plan.explain.json_document import document
from rowkind.service.plan.explain.mermaid import flowchart
from rowkind.service.plan.explain.summary import summary
from rowkind.service.plan.explain.text import text

Format = Literal["summary", "text", "json", "mermaid", "html"]


def explain(sinks: Sequence[PhysicalSink], name: str = "main") -> str:
    """Return a query's plans as text trees, each followed by the advice on that plan."""
    return text([with_display_names(describe(name, sinks))])


def render(job: Job, queries: Mapping[str, Sequence[PhysicalSink]], form: Format) -> str:
    """Return the plans of all queries of a job as one document in the format `form`."""
    sqls = {name: sink.sql for name, sink in job.sinks.items()}
    descriptions = [with_display_names(describe(name, sinks, sqls)) for name, sinks in queries.items()]
    match form:
        case "summary":
            return summary(job.name, descriptions)
        case "text":
            return text(descriptions)
        case "json":
            return document(job.name, job.views, descriptions)
        case "mermaid":
            return flowchart(descriptions)
        case "html":
            return page(job.name, job.views, descriptions)
