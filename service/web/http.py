"""The one port of a service: who may see it, and how what is there gets to them. What is there, others say.

It may speak TLS, and ask for a login, all but for the two probes, which say no more then than their code.
"""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from rowkind.service.job.model import Job
from rowkind.service.machine.http_server import HttpServer
from rowkind.service.query.errors import StartError

PROBES = ("/healthz", "/readyz")


@dataclass(frozen=True)
class Response:
    """What a request gets: a status code, and a body of a type."""

    code: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, code: int, text: str) -> Response:
        """A line for people."""
        return cls(code, "text/plain; charset=utf-8", f"{text}\n".encode())

    @classmethod
    def page(cls, html: str, headers: Mapping[str, str] | None = None) -> Response:
        """A page of HTML."""
        return cls(200, "text/html; charset=utf-8", html.encode(), headers or {})


class Pages(Protocol):
    """What is served. Calls come from other threads."""

    def answer(self, path: str, *, known: bool) -> Response:
        """What is at a path, for somebody who has shown the login, or has not: then only a probe is asked for."""


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


class StatusServer(HttpServer):
    """Serves `pages` under the guard's rules."""

    def __init__(self, pages: Pages, host: str, port: int, guard: Guard) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages, "guard": guard})
        super().__init__(handler, host, port, "status", guard.context)
        self.scheme = "http" if guard.certificate is None else "https"


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    guard: Guard

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        known = self.guard.admits(self.headers.get("Authorization"))
        if known or path in PROBES:
            self._send(self.pages.answer(path, known=known))
        else:
            self._send(
                replace(Response.text(401, "the login is missing or wrong"), headers={"WWW-Authenticate": "Basic"})
            )

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, answer: Response) -> None:
        self.send_response(answer.code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """What answers; not of which version, which would tell an attacker what to try."""
        return "Rowkind"

    def log_message(self, *_: object) -> None:
        """Requests are not logged: probes come every few seconds."""


@contextmanager
def serving(pages: Pages, job: Job, host: str, port: int) -> Iterator[StatusServer]:
    """Serve the pages to those whom the job lets see them. Raises StartError."""
    guard = _guard(job)
    try:
        guard.context  # noqa: B018 - it is looked at before the port is
    except OSError as error:
        raise StartError(
            f"`status`: {guard.certificate} and {guard.key} are no certificate and its key: {error.strerror or error}"
        ) from None
    try:
        server = StatusServer(pages, host, port, guard)
    except OSError as error:
        raise StartError(
            f"port {port} of {host} cannot be had for status and metrics: {error.strerror}. Choose another with --port "
            f"(0 takes any free one), or end what listens there; is it another run of this job?"
        ) from None
    with server:
        yield server


def _guard(job: Job) -> Guard:
    """Who may see the status port; files are looked up beside the job file."""
    said = job.status or {}
    certificate, key = (str(job.file.parent / said[name]) if name in said else None for name in ("certificate", "key"))
    return Guard(certificate, key, f"{said['user']}:{said['password']}" if "user" in said else None)
