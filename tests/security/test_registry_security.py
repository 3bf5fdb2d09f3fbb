"""Registries that require TLS and a login or token, simulated by a proxy in front of the registry of `rowkind dev`."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from rowkind.avro.confluent_registry import ConfluentRegistry
from rowkind.avro.errors import RegistryUnreachableError
from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.dev.registry_server import RegistryServer

ROW = Record.of({"id": "BIGINT NOT NULL"})
BASIC = f"Basic {base64.b64encode(b'job:planted').decode()}"
BEARER = "Bearer planted-token"
LOGIN = {"basic.auth.user.info": "job:planted"}
TOKEN = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": "planted-token",
    "bearer.auth.logical.cluster": "lsrc-1",
    "bearer.auth.identity.pool.id": "pool-1",
}


class _Door(BaseHTTPRequestHandler):
    """Proxy that passes only requests with the right header to the registry."""

    registry: int
    wanted: str

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer = 401, b'{"error_code": 401, "message": "Unauthorized"}'
        if self.headers.get("Authorization") == self.wanted:
            inner = http.client.HTTPConnection("127.0.0.1", self.registry)
            inner.request(self.command, self.path, body or None)
            found = inner.getresponse()
            status, answer = found.status, found.read()
            inner.close()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority for the tests."""
    return trustme.CA()


@pytest.fixture(params=[BASIC, BEARER], ids=["basic", "bearer"])
def door(request: pytest.FixtureRequest, authority: trustme.CA, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a registry behind TLS, and the header that it requires."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with RegistryServer(FolderRegistry(tmp_path / "schemas"), 0) as registry:
        handler = type("OneDoor", (_Door,), {"registry": registry.port, "wanted": request.param})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}", request.param
        server.shutdown()
        server.server_close()


def registry(
    door: tuple[str, str], settings: Mapping[str, str], authority: trustme.CA, folder: Path
) -> ConfluentRegistry:
    """Return the registry client of a job with these settings."""
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return ConfluentRegistry({"url": door[0], "ssl.ca.location": str(folder / "ca.pem"), "max.retries": 0} | settings)


def test_who_shows_who_he_is_gets_in(door: tuple[str, str], authority: trustme.CA, tmp_path: Path) -> None:
    """With the right login or token, the registry can be used."""
    mine = registry(door, LOGIN if door[1] == BASIC else TOKEN, authority, tmp_path)
    assert mine.schema_by_id(mine.register("orders-value", ROW)) == mine.latest("orders-value") == ROW


def test_who_does_not_is_told_what_to_look_at(door: tuple[str, str], authority: trustme.CA, tmp_path: Path) -> None:
    """Without a login, with a wrong one, or without the certificate authority, the error says so without secrets."""
    for settings in ({}, TOKEN if door[1] == BASIC else LOGIN):
        with pytest.raises(RegistryUnreachableError, match="refuses the login") as told:
            registry(door, settings, authority, tmp_path).latest("orders-value")
        assert "planted" not in str(told.value)
    stranger = ConfluentRegistry({"url": door[0], "max.retries": 0})
    with pytest.raises(RegistryUnreachableError, match="certificate"):
        stranger.latest("orders-value")
