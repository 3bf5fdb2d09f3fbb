"""A plan as an object: text where it is printed, a page where a notebook shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.explain.render import render


class Plan:
    """The plan of a job's queries, in each form that `rowkind explain` has."""

    def __init__(self, job: Job, queries: Mapping[str, Sequence[PhysicalSink]]) -> None:
        self._job = job
        self._queries = queries

    def __str__(self) -> str:
        """A tree for each sink, with advice below it."""
        return render(self._job, self._queries, "text")

    def __repr__(self) -> str:
        return str(self)

    @property
    def document(self) -> dict[str, Any]:
        """The plan for programs."""
        found: dict[str, Any] = json.loads(render(self._job, self._queries, "json"))
        return found

    @property
    def mermaid(self) -> str:
        """A flowchart in the language of Mermaid."""
        return render(self._job, self._queries, "mermaid")

    @property
    def html(self) -> str:
        """A page that needs nothing but itself."""
        return render(self._job, self._queries, "html")

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles stay there."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 40rem; border: 0" '
            f'title="Plan of {escape(self._job.name)}"></iframe>'
        )
