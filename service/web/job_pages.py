"""The HTTP pages of a job.

- `/healthz` returns 200 while the job works, with the text of any warnings. It returns 503 once a query has failed.
- `/readyz` returns 200 if every query has finished a batch, or has found nothing to do, since its start. Otherwise it
  returns 503 with the reason.
- `/metrics` returns the metrics in Prometheus text format.
- `/` shows every query with its graph and its progress, or a list of the queries if there are many. `/query/NAME` shows
  one query, and `/explain` shows more details of the plans.
- `/status.json` returns the content of `/` in machine-readable form, and `/history.json` the values of its charts.

All pages are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from rowkind.service.monitoring.exposition import CONTENT_TYPE
from rowkind.service.monitoring.history import HistoryRange, histories_json
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

    def history(self) -> Mapping[str, Sequence[HistoryRange]]:
        """Return the history of every query."""

    def plans(self) -> Sequence[QueryDescription]:
        """Return the plan of every query."""


@dataclass(frozen=True)
class JobPages:
    """The pages of a job. `views` maps the names of the job's views to their SQL."""

    status: Status
    views: Mapping[str, str]

    def answer(self, path: str, *, known: bool, rows: bool) -> Response:
        """Return the response for a path."""
        match path:
            case "/metrics":
                return Response(200, CONTENT_TYPE, self.status.exposition())
            case "/healthz":
                return self._verdict(self.status.healthy(), self.status.warning(), known=known)
            case "/readyz":
                return self._verdict(self.status.healthy() and self.status.ready(), known=known)
            case "/":
                shown = status_page.page(self._status(rows=rows), self.status.plans(), self.status.history())
                return Response.page(shown, live_page.HEADERS)
            case "/explain":
                return Response.page(html.page(self.status.status().job, self.views, self.status.plans(), runs=True))
            case _ if path.startswith("/query/"):
                return self._query(unquote(path.removeprefix("/query/")), rows=rows)
            case _ if path in (documents := self._documents(rows=rows)):
                return Response(200, "application/json", documents[path]().encode())
            case _:
                return Response.text(
                    404,
                    "not found: try /, /explain, /query/NAME, /status.json, /history.json, /metrics, /healthz, /readyz",
                )

    def _documents(self, *, rows: bool) -> Mapping[str, Callable[[], str]]:
        """Return the functions that compute the JSON documents, by path."""
        return {
            "/status.json": lambda: self._status(rows=rows).to_json(),
            "/history.json": lambda: histories_json(self.status.history()),
        }

    def _query(self, name: str, *, rows: bool) -> Response:
        status, plans = self._status(rows=rows), self.status.plans()
        shown = status_page.query_page(name, status, plans, self.status.history())
        if shown is None:
            names = ", ".join(each.name for each in status.queries)
            return Response.text(404, f"there is no query {name}; the queries are {names}")
        return Response.page(shown, live_page.HEADERS)

    def _status(self, *, rows: bool) -> JobStatus:
        status = self.status.status()
        return status if rows else status.without_rows()

    def _verdict(self, good: bool, warning: str = "", *, known: bool) -> Response:
        if not known:
            return Response.text(200 if good else 503, "ok" if good else "not ready, or failed")
        return Response.text(200 if good else 503, (warning or "ok") if good else self.status.reason())
