"""A plan for people and for programs (`rowkind explain`).

It says for every step what comes out of it, which kinds of changes, under which keys, and where there is state: how it
is laid out, for how long it is kept, and why. One description is made of the plan, and each format is written from it.
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
from rowkind.service.plan.explain.text import text

Format = Literal["text", "json", "mermaid", "html"]


def explain(sinks: Sequence[PhysicalSink], name: str = "main") -> str:
    """The plans of a query as trees, with advice below each."""
    return text([with_display_names(describe(name, sinks))])


def render(job: Job, queries: Mapping[str, Sequence[PhysicalSink]], form: Format) -> str:
    """The plans of the queries of a job, in one document."""
    sqls = {name: sink.sql for name, sink in job.sinks.items()}
    descriptions = [with_display_names(describe(name, sinks, sqls)) for name, sinks in queries.items()]
    match form:
        case "text":
            return text(descriptions)
        case "json":
            return document(job.name, job.views, descriptions)
        case "mermaid":
            return flowchart(descriptions)
        case "html":
            return page(job.name, job.views, descriptions)
