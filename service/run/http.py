"""The job's one port: `/metrics`, `/healthz`, `/readyz` and a status page for people.

- `/healthz` is 200 while the process serves the job, and 503 once a query has failed. Its text says what is wrong all
  the same.
- `/readyz` is 200 when every query has finished a batch, or found nothing to do, since it was started; else it is 503
  and says why.
- `/metrics` is the Prometheus exposition.
- `/` shows the plan of every query with its progress.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from string import Template
from typing import Protocol, Self


@dataclass(frozen=True)
class QueryStatus:
    """One query as the status page shows it, under the names of its sinks."""

    sinks: str
    plan: str
    state: str
    facts: tuple[tuple[str, str], ...]


class Status(Protocol):
    """What the server asks of the running job. All calls come from other threads."""

    def healthy(self) -> bool:
        """Whether no query has failed."""

    def ready(self) -> bool:
        """Whether every query has caught its first batch."""

    def reason(self) -> str:
        """Why it is not ready, or not healthy."""

    def warning(self) -> str:
        """What is wrong though it is healthy."""

    def exposition(self) -> bytes:
        """The metrics in Prometheus text format."""

    def queries(self) -> Sequence[QueryStatus]:
        """Every query of the job."""


class StatusServer:
    """Serves `status` on a port of its own until it is closed. Port 0 takes any free one; `port` is the real one."""

    def __init__(self, job: str, status: Status, host: str, port: int) -> None:
        handler = type("Handler", (_Handler,), {"job": job, "status": status})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    job: str
    status: Status

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.status.exposition())
            case "/healthz":
                self._verdict(self.status.healthy(), self.status.warning())
            case "/readyz":
                self._verdict(self.status.healthy() and self.status.ready())
            case "/":
                self._answer(200, "text/html; charset=utf-8", page(self.job, self.status).encode())
            case _:
                self._answer(404, "text/plain", b"try /, /metrics, /healthz or /readyz\n")

    def _verdict(self, good: bool, warning: str = "") -> None:
        text = (warning or "ok") if good else self.status.reason()
        self._answer(200 if good else 503, "text/plain", f"{text}\n".encode())

    def _answer(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged: probes come every few seconds."""


def page(job: str, status: Status) -> str:
    """The status page as HTML."""
    cards = []
    for query in status.queries():
        facts = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in query.facts
        )
        cards.append(
            f"<section><h2>{html.escape(query.sinks)} <span class='{html.escape(query.state)}'>"
            f"{html.escape(query.state)}</span></h2><table>{facts}</table><pre>{html.escape(query.plan)}</pre></section>"
        )
    template = Template(resources.files("rowkind.service.run").joinpath("status.html").read_text("utf-8"))
    return template.substitute(job=html.escape(job), queries="\n".join(cards))
