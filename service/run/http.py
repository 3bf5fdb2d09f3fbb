"""The job's one port: `/metrics`, `/healthz`, `/readyz` and a status page for people.

- `/healthz` is 200 while the process serves the job, and 503 once a query has failed. Its text says what is wrong all
  the same.
- `/readyz` is 200 when every query has finished a batch, or found nothing to do, since it was started; else it is 503
  and says why.
- `/metrics` is the Prometheus exposition.
- `/` shows the plan of every query with its progress, and `/explain` more of the plan.
- `/status.json` says for programs what `/` shows.

Nothing can be changed through it. It may speak TLS, and ask for a login, all but for the two probes, which say no more
then than their code.
"""

from __future__ import annotations

import base64
import hmac
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from rowkind.service.plan.explain import html
from rowkind.service.plan.explain.description import QueryDescription
from rowkind.service.run import status_page
from rowkind.service.run.status import JobStatus

_PATIENCE_SECONDS = 30.0


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

    def status(self) -> JobStatus:
        """All that is known now."""

    def plans(self) -> Sequence[QueryDescription]:
        """The plan of every query."""


@dataclass(frozen=True)
class Guard:
    """Who may see the port: files of a certificate with its key for TLS, and a login, `user:password`."""

    certificate: str | None = None
    key: str | None = None
    login: str | None = field(default=None, repr=False)

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS, None for none. Raises OSError for files that are no certificate and its key."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def admits(self, authorization: str | None) -> bool:
        """Whether a request with this header may see everything."""
        if self.login is None:
            return True
        wanted = base64.b64encode(self.login.encode()).decode()
        return hmac.compare_digest(f"Basic {wanted}".encode(), (authorization or "").encode())


class StatusServer:
    """Serves the `status` of a job on a port of its own until it is closed.

    Port 0 takes any free one; `port` is the real one. `views` are the job's views and their SQL.
    """

    def __init__(self, status: Status, views: Mapping[str, str], host: str, port: int, guard: Guard) -> None:
        handler = type("Handler", (_Handler,), {"status": status, "views": views, "guard": guard})
        self._server = _Server((host, port), handler)
        self._server.context = guard.context
        self.scheme = "http" if guard.certificate is None else "https"
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


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext | None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer, in a thread of its own; that of TLS too, so that who says nothing holds up nobody."""
        request.settimeout(_PATIENCE_SECONDS)
        if self.context is None:
            super().finish_request(request, client_address)
            return
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, *_: object) -> None:
        """Whoever hangs up in the middle is not worth a line."""


class _Handler(BaseHTTPRequestHandler):
    status: Status
    views: Mapping[str, str]
    guard: Guard

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        known = self.guard.admits(self.headers.get("Authorization"))
        if not known and path not in ("/healthz", "/readyz"):
            self._answer(401, "text/plain", b"the login is missing or wrong\n", {"WWW-Authenticate": "Basic"})
            return
        match path:
            case "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.status.exposition())
            case "/healthz":
                self._verdict(self.status.healthy(), self.status.warning())
            case "/readyz":
                self._verdict(self.status.healthy() and self.status.ready())
            case "/":
                page = status_page.page(self.status.status(), self.status.plans())
                self._answer(200, "text/html; charset=utf-8", page.encode(), status_page.HEADERS)
            case "/explain":
                page = html.page(self.status.status().job, self.views, self.status.plans())
                self._answer(200, "text/html; charset=utf-8", page.encode())
            case "/status.json":
                self._answer(200, "application/json", self.status.status().to_json().encode())
            case _:
                self._answer(404, "text/plain", b"try /, /explain, /status.json, /metrics, /healthz or /readyz\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _verdict(self, good: bool, warning: str = "") -> None:
        text = (warning or "ok") if good else self.status.reason()
        if not self.guard.admits(self.headers.get("Authorization")):
            text = "ok" if good else "not ready, or failed"
        self._answer(200 if good else 503, "text/plain", f"{text}\n".encode())

    def _answer(self, code: int, content_type: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged: probes come every few seconds."""
