"""The HTTP server for the status port of a job or a multi-job service. Other modules provide the pages.

The server can use TLS and require a login. The two probes need no login, but without one they return no details.
"""

from __future__ import annotations

import base64
import hmac
import re
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

WITHOUT_ROWS = "Rowkind-Without-Rows"
"""The header of a request by a multi-job service whose own port must not show values of rows."""

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Response:
    """An HTTP response: a status code, and a body with its content type."""

    code: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, code: int, text: str) -> Response:
        """Return a plain-text response."""
        return cls(code, "text/plain; charset=utf-8", f"{text}\n".encode())

    @classmethod
    def page(cls, html: str, headers: Mapping[str, str] | None = None) -> Response:
        """Return an HTML page."""
        return cls(200, "text/html; charset=utf-8", html.encode(), headers or {})


class Pages(Protocol):
    """The pages to serve. `answer` is called from other threads."""

    def answer(self, path: str, *, known: bool, rows: bool) -> Response:
        """Return the response for a path.

        `known` is False for a probe without a login, which must not see details. `rows`: whether values of rows may be
        shown.
        """


@dataclass(frozen=True)
class Guard:
    """Access control of the port: the files of a TLS certificate and its key, and the login as `user:password`.

    `local`: only this machine reaches the port.
    """

    certificate: str | None = None
    key: str | None = None
    login: str | None = field(default=None, repr=False)
    local: bool = True

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context, or None for plain HTTP. Raises OSError if the files are not a certificate and its key."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def shows_rows(self, host: str) -> bool:
        """Return whether a response to a request for this `host` may have values of rows.

        Other machines need a login. Another site, or a proxy, may have a name that leads to this machine, but then the
        request is for that name.
        """
        name = re.sub(r":\d+$", "", host).strip("[]")
        return self.login is not None or (self.local and name in _LOCAL_HOSTS)

    def admits(self, authorization: str | None) -> bool:
        """Return whether a request with this Authorization header may see all pages and details."""
        if self.login is None:
            return True
        wanted = base64.b64encode(self.login.encode()).decode()
        return hmac.compare_digest(f"Basic {wanted}".encode(), (authorization or "").encode())


class StatusServer(HttpServer):
    """The HTTP server that serves `pages` to the requests that the guard admits."""

    def __init__(self, pages: Pages, host: str, port: int, guard: Guard) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages, "guard": guard})
        super().__init__(handler, host, port, "status", guard.context)
        self.scheme = "http" if guard.certificate is None else "https"


class ResponseHandler(BaseHTTPRequestHandler):
    """Sends responses. It logs nothing, and the server's name has no version, which could help an attacker."""

    def respond(self, answer: Response) -> None:
        """Send a response, without its body if the request is HEAD."""
        self.send_response(answer.code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Return the server's name."""
        return "Rowkind"

    def log_message(self, *_: object) -> None:
        """Log nothing: probes send a request every few seconds."""


class _Handler(ResponseHandler):
    pages: Pages
    guard: Guard

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        known = self.guard.admits(self.headers.get("Authorization"))
        if known or path in PROBES:
            rows = self.guard.shows_rows(self.headers.get("Host", "")) and WITHOUT_ROWS not in self.headers
            self.respond(self.pages.answer(path, known=known, rows=rows))
        else:
            self.respond(
                replace(Response.text(401, "the login is missing or wrong"), headers={"WWW-Authenticate": "Basic"})
            )

    def do_HEAD(self) -> None:
        self.do_GET()


@contextmanager
def serving(pages: Pages, job: Job, host: str, port: int) -> Iterator[StatusServer]:
    """Serve the pages with the access control of the job's `status` section. Raises StartError."""
    guard = _guard(job, local=host in _LOCAL_HOSTS)
    try:
        guard.context  # noqa: B018 - check the files before the port is opened
    except OSError as error:
        raise StartError(
            f"`status`: the certificate {guard.certificate} and its key {guard.key} cannot be loaded: "
            f"{error.strerror or error}"
        ) from None
    try:
        server = StatusServer(pages, host, port, guard)
    except OSError as error:
        raise StartError(
            f"port {port} of {host} is not available for status and metrics: {error.strerror}. Choose another one with "
            f"--port (0 for any free port), or stop the process that uses it, which may be another run of this job"
        ) from None
    with server:
        yield server


def _guard(job: Job, *, local: bool) -> Guard:
    """Return the access control of the status port. File paths are relative to the job file."""
    said = job.status or {}
    certificate, key = (str(job.file.parent / said[name]) if name in said else None for name in ("certificate", "key"))
    return Guard(certificate, key, f"{said['user']}:{said['password']}" if "user" in said else None, local)
