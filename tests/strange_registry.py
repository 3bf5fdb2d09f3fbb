"""A schema registry over HTTP that can misbehave as proxies and overloaded registries do."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.registry_server import RegistryServer

_DRIP_SECONDS = 0.2
_PAGE = b"<html><body><h1>Gateway</h1></body></html>"


class StrangeRegistry(RegistryServer):
    """Serves a folder like the registry of `rowkind dev`, until `misbehaves` names one of `MISBEHAVIOURS`.

    `schemas` has further schemas by id; their text may be anything. `asked` counts requests.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderRegistry(folder), 0)
        self.folder = FolderRegistry(folder)
        self.asked = 0
        self.schemas: dict[int, str] = {}
        self.misbehaves = ""
        self._well = threading.Event()
        self._well.set()
        handler = self._server.RequestHandlerClass
        behaved, strange = handler._route, self  # type: ignore[attr-defined]

        def route(self: _Answering, method: str) -> None:
            strange.asked += 1
            number = (
                int(self.path.partition("?")[0].rpartition("/")[2]) if self.path.startswith("/schemas/ids/") else -1
            )
            if not strange.misbehaves and number in strange.schemas:
                self._answer(200, {"schema": strange.schemas[number]})
                return
            if not strange.misbehaves:
                behaved(self, method)
                return
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            MISBEHAVIOURS[strange.misbehaves](self, strange._well)

        handler._route = route  # type: ignore[attr-defined]

    def begin(self, misbehaviour: str) -> None:
        """Misbehave from now on."""
        self._well.clear()
        self.misbehaves = misbehaviour

    def end(self) -> None:
        """Behave normally again and release the requests that are waiting."""
        self.misbehaves = ""
        self._well.set()

    def __exit__(self, *error: object) -> None:
        self.end()
        super().__exit__(*error)


class _Answering:
    """The parts of a standard-library request handler that are used here."""

    rfile: socket.SocketIO
    wfile: socket.SocketIO
    connection: socket.socket
    headers: Mapping[str, str]
    close_connection: bool
    path: str
    _answer: Callable[[int, object], None]
    send_response: Callable[[int], None]
    send_header: Callable[[str, str], None]
    end_headers: Callable[[], None]


_Misbehaviour = Callable[[_Answering, threading.Event], None]


def _answers(status: int, body: bytes, kind: str = "application/json", **headers: str) -> _Misbehaviour:
    def answer(handler: _Answering, _: threading.Event) -> None:
        handler.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", **headers}
        for name, value in told.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def _says(status: int, code: int) -> _Misbehaviour:
    return _answers(status, f'{{"error_code": {code}, "message": "because"}}'.encode())


def _resets(handler: _Answering, _: threading.Event) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RD)
    handler.connection.close()


def _hangs(_: _Answering, well: threading.Event) -> None:
    well.wait()


def _drips(head: bytes) -> _Misbehaviour:
    """Send a byte at intervals, each shorter than a client's read timeout."""

    def drip(handler: _Answering, well: threading.Event) -> None:
        handler.wfile.write(head)
        while not well.wait(_DRIP_SECONDS):
            handler.wfile.write(b" ")

    return drip


MISBEHAVIOURS: Mapping[str, _Misbehaviour] = {
    "too many requests": _says(429, 42901),
    "internal error": _says(500, 50001),
    "store not ready": _says(503, 50303),
    "bad gateway": _answers(502, _PAGE, "text/html"),
    "timeout of a gateway": _answers(504, b"", "text/plain"),
    "request timeout": _says(408, 408),
    "redirect": _answers(301, b"", Location="http://127.0.0.1:9/"),
    "temporary redirect": _answers(307, _PAGE, "text/html", Location="https://login.example.com/"),
    "page": _answers(200, _PAGE, "text/html"),
    "page not found": _answers(404, _PAGE, "text/html"),
    "no such path": _answers(404, b'{"status": 404, "error": "Not Found"}'),
    "gone": _says(410, 410),
    "bad request": _says(400, 400),
    "nothing": _answers(200, b""),
    "null": _answers(200, b"null"),
    "list": _answers(200, b"[]"),
    "empty object": _answers(200, b"{}"),
    "other object": _answers(200, b'{"schema": 5, "id": "x", "version": null}'),
    "half an answer": _answers(200, b'{"schema": "\\"str'),
    "no content": _answers(204, b""),
    "deep": _answers(200, b"[" * 100_000),
    "reset": _resets,
    "hang": _hangs,
    "drip of the head": _drips(b"HTTP/1.1 200 OK\r\nX-Drip: "),
    "drip of the body": _drips(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"),
}
"""Responses that a registry, or a proxy in front of it, may send instead of an answer; none judges a schema."""
