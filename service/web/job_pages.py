"""The HTTP pages of a job.

- `/healthz` returns 200 while the job works, with the text of any warnings. It returns 503 once a query has failed.
- `/readyz` returns 200 if every query has finished a batch, or has found nothing to do, since its start. Otherwise it
  returns 503 with the reason.
- `/metrics` returns the metrics in Prometheus text format.
- `/` shows the plan of every query with its progress, and `/explain` shows more details of the plan.
- `/status.json` returns the content of `/` in machine-readable form.

All pages are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rowkind.service.monitoring.exposition import CONTENT_TYPE
from rowkind.service.monitoring.status import JobStatus
from rowkind.service.plan.explain import html
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.web import live_page, status_page
from rowkind.service.web.http import Response


class Status(Protocol):
    """The interface to the running job. All calls come from other threads."""

    def healthy(self) -> bool:
        """Return whether no query has failed."""

    def ready(self) -> bool:
        """Return whether every query has finished its first batch, or found nothing to do."""

    def reason(self) -> str:
        """Return why the job is not ready, or not healthy."""

    def warning(self) -> str:
        """Return the warnings of a healthy job."""

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus text format."""

    def status(self) -> JobStatus:
        """Return the current status."""

    def plans(self) -> Sequence[QueryDescription]:
        """Return the plan of every query."""


@dataclass(frozen=True)
class JobPages:
    """The pages of a job. `views` maps the names of the job's views to their SQL."""

    status: Status
    views: Mapping[str, str]

    def answer(self, path: str, *, known: bool) -> Response:
        """Return the response for a path."""
        match path:
            case "/metrics":
                return Response(200, CONTENT_TYPE, self.status.exposition())
            case "/healthz":
                return self._verdict(self.status.healthy(), self.status.warning(), known=known)
            case "/readyz":
                return self._verdict(self.status.healthy() and self.status.ready(), known=known)
            case "/":
                return Response.page(status_page.page(self.status.status(), self.status.plans()), live_page.HEADERS)
            case "/explain":
                return Response.page(html.page(self.status.status().job, self.views, self.status.plans(), runs=True))
            case "/status.json":
                return Response(200, "application/json", self.status.status().to_json().encode())
            case _:
                return Response.text(404, "not found: try /, /explain, /status.json, /metrics, /healthz or /readyz")

    def _verdict(self, good: bool, warning: str = "", *, known: bool) -> Response:
        if not known:
            return Response.text(200 if good else 503, "ok" if good else "not ready, or failed")
        return Response.text(200 if good else 503, (warning or "ok") if good else self.status.reason())
