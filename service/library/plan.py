"""A plan as a Python object, shown as text when printed and as a page in a notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.explain.render import render


class Plan:
    """The plan of a job's queries, in all forms that `rowkind explain` offers."""

    def __init__(self, job: Job, queries: Mapping[str, Sequence[PhysicalSink]]) -> None:
        self._job = job
        self._queries = queries

    def __str__(self) -> str:
        """Return a tree for each sink, with advice below it."""
        return render(self._job, self._queries, "text")

    def __repr__(self) -> str:
        return str(self)

    @property
    def document(self) -> dict[str, Any]:
        """The plan in machine-readable form."""
        found: dict[str, Any] = json.loads(render(self._job, self._queries, "json"))
        return found

    @property
    def mermaid(self) -> str:
        """The plan as a Mermaid flowchart."""
        return render(self._job, self._queries, "mermaid")

    @property
    def html(self) -> str:
        """The plan as a self-contained HTML page."""
        return render(self._job, self._queries, "html")

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that its styles do not affect the notebook."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 40rem; border: 0" '
            f'title="Plan of {escape(self._job.name)}"></iframe>'
        )
