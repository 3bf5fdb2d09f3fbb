"""An HTTP server on its own port, for the status page and for the schema registry of `rowkind dev`."""

from __future__ import annotations

import ssl
import threading
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_PATIENCE_SECONDS = 30.0
"""A client that sends nothing for this many seconds is disconnected."""

_POLL_SECONDS = 0.1
"""Interval in seconds at which the server checks whether it was closed. Closing takes no longer than this."""


class HttpServer:
    """Answers requests with `handler`, in one thread per connection, until it is closed.

    If `context` is given, connections use TLS. Port 0 means any free port; the attribute `port` is the actual port.
    Raises OSError if the port is in use.
    """

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        host: str,
        port: int,
        name: str,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._server = _Server((host, port), handler)
        self._server.context = context
        self.port: int = self._server.server_address[1]
        serve = partial(self._server.serve_forever, _POLL_SECONDS)
        self._thread = threading.Thread(target=serve, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handle each request in its own thread, TLS handshake included, so that an idle client cannot block others."""
        request.settimeout(_PATIENCE_SECONDS)
        if self.context is None:
            super().finish_request(request, client_address)
            return
        with suppress(OSError), self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: a client that disconnects early is not worth a log line."""
