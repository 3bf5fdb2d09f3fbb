"""Serve a folder of schemas through Confluent's Schema Registry HTTP API, for clients that need it.

The server supports the calls of Avro producers and consumers: register, look up, and read by id, GUID, subject and
version. It does not check compatibility, and schemas cannot be deleted.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from rowkind.avro.errors import AvroError, UnknownSchemaError
from rowkind.avro.registry import FolderRegistry, identify
from rowkind.avro.schema import Record
from rowkind.service.machine.http_server import HttpServer

_TYPE = "application/vnd.schemaregistry.v1+json"
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _INVALID = 40401, 40402, 40403, 42201


class _Refusal(Exception):  # noqa: N818 -- it becomes an answer
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryServer(HttpServer):
    """An HTTP server for a folder of schemas on 127.0.0.1."""

    def __init__(self, registry: FolderRegistry, port: int) -> None:
        handler = type("RegistryHandler", (_RegistryHandler,), {"registry": registry, "protocol_version": "HTTP/1.1"})
        super().__init__(handler, "127.0.0.1", port, "registry")

    @property
    def url(self) -> str:
        """The address for `registry.url`."""
        return f"http://127.0.0.1:{self.port}"


class _RegistryHandler(BaseHTTPRequestHandler):
    registry: FolderRegistry

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def _route(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path).rstrip("/") or "/"
        found = ((answer, pattern.fullmatch(path)) for wanted, pattern, answer in _ROUTES if wanted == method)
        answer, match = next((each for each in found if each[1]), (_nothing, None))
        try:
            self._answer(200, answer(self.registry, body, *(match.groups() if match else ())))
        except _Refusal as refusal:
            self._answer(refusal.status, {"error_code": refusal.code, "message": str(refusal)})

    def _answer(self, status: int, told: Any) -> None:
        text = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing, because a line per request would be too much."""


def _nothing(*_: object) -> Any:
    raise _Refusal(404, 404, "HTTP 404 Not Found")


def _schema(body: bytes) -> Record:
    try:
        asked = json.loads(body)
        if asked.get("schemaType", "AVRO") != "AVRO" or asked.get("references"):
            raise _Refusal(422, _INVALID, "only Avro schemas without references are supported")
        return Record.parse(asked["schema"])
    except (AvroError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _Refusal(422, _INVALID, f"the schema is not valid: {error}") from None


def _register(registry: FolderRegistry, body: bytes, subject: str) -> Any:
    """Register a schema. Confluent's serializer takes the GUID for headers from this response, or that of a look-up."""
    schema = _schema(body)
    try:
        registry.register(subject, schema)
    except AvroError as error:
        raise _Refusal(422, _INVALID, str(error)) from None
    return _found(registry, subject, schema)


def _versions(registry: FolderRegistry, subject: str) -> dict[int, Record]:
    found = registry.versions(subject)
    if not found:
        raise _Refusal(404, _NO_SUBJECT, f"Subject '{subject}' not found.")
    return found


def _told(subject: str, version: int, record: Record) -> Any:
    number, guid = identify(record)
    return {"subject": subject, "version": version, "id": number, "guid": str(guid), "schema": record.to_json()}


def _look_up(registry: FolderRegistry, body: bytes, subject: str) -> Any:
    return _found(registry, subject, _schema(body))


def _found(registry: FolderRegistry, subject: str, schema: Record) -> Any:
    for version, record in _versions(registry, subject).items():
        if identify(record) == identify(schema):
            return _told(subject, version, record)
    raise _Refusal(404, _NO_SCHEMA, "Schema not found")


def _version(registry: FolderRegistry, _: bytes, subject: str, version: str) -> Any:
    found = _versions(registry, subject)
    number = max(found) if version in ("latest", "-1") else int(version)
    if number not in found:
        raise _Refusal(404, _NO_VERSION, f"Version {version} not found.")
    return _told(subject, number, found[number])


def _by_id(registry: FolderRegistry, _: bytes, number: str) -> Any:
    try:
        record = registry.schema_by_id(uuid.UUID(number) if "-" in number else int(number))
    except (UnknownSchemaError, ValueError):
        raise _Refusal(404, _NO_SCHEMA, f"Schema {number} not found") from None
    return {"schema": record.to_json(), "guid": str(identify(record)[1])}


_Route = tuple[str, re.Pattern[str], Callable[..., Any]]
_ROUTES: tuple[_Route, ...] = tuple(
    (method, re.compile(pattern), answer)
    for method, pattern, answer in (
        ("GET", "/", lambda *_: {}),
        ("GET", "/subjects", lambda registry, _: registry.subjects()),
        ("GET", "/subjects/([^/]+)/versions", lambda registry, _, subject: sorted(_versions(registry, subject))),
        ("GET", r"/subjects/([^/]+)/versions/(latest|-?\d+)", _version),
        ("POST", "/subjects/([^/]+)/versions", _register),
        ("POST", "/subjects/([^/]+)", _look_up),
        ("GET", r"/schemas/ids/(\d+)", _by_id),
        ("GET", "/schemas/guids/([0-9a-f-]+)", _by_id),
        ("GET", "/schemas/types", lambda *_: ["AVRO"]),
        ("GET", "/config(?:/[^/]+)?", lambda *_: {"compatibilityLevel": "NONE"}),
        ("GET", "/mode(?:/[^/]+)?", lambda *_: {"mode": "READWRITE"}),
    )
)
