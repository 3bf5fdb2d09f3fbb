"""Schemas by id and by subject: from a Confluent-compatible registry, or from a local folder.

Registries pickle as their settings. What they have learned (ids and GUIDs never change their meaning) is kept for the
life of the process and shared by all that have the same settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from avro.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnreachableError,
    SchemaError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from avro.schema import Record

try:  # The client raises the errors of whichever of the two it finds, in this order.
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[no-redef,import-not-found,unused-ignore]

_VERSIONED = re.compile(r"(?P<subject>.+?)(?:\.v(?P<version>[0-9]+))?\.avsc")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Answer = TypeVar("Answer")


class Registry(Protocol):
    """Where schemas are kept. Each call may raise any RegistryError."""

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """The schema with this id or GUID. Raises UnknownSchemaError."""

    def latest(self, subject: str) -> Record:
        """The newest schema of a subject. Raises UnknownSubjectError."""

    def register(self, subject: str, record: Record) -> int:
        """The id of the schema under the subject, which it is added to if it is new there."""


class ConfluentRegistry:
    """A registry with Confluent's HTTP interface; `config` is that of its Python client, with names as in librdkafka.

    For example `{"url": "https://…", "basic.auth.user.info": "user:password", "ssl.ca.location": "ca.pem"}`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._session = _session(json.dumps(self._config, sort_keys=True))

    def __reduce__(self) -> tuple[type[ConfluentRegistry], tuple[dict[str, Any]]]:
        return type(self), (self._config,)

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """The schema with this id or GUID. Raises UnknownSchemaError."""
        if schema_id not in self._session.schemas:
            client = self._session.client
            if isinstance(schema_id, uuid.UUID):
                found = self._ask(lambda: client.get_schema_by_guid(str(schema_id)), UnknownSchemaError, schema_id)
            else:
                found = self._ask(lambda: client.get_schema(schema_id), UnknownSchemaError, schema_id)
            self._session.schemas[schema_id] = self._parse(found, f"schema {schema_id}")
        return self._session.schemas[schema_id]

    def latest(self, subject: str) -> Record:
        """The newest schema of a subject. Raises UnknownSubjectError."""
        client = self._session.client
        client.clear_latest_caches()  # type: ignore[no-untyped-call]
        found = self._ask(lambda: client.get_latest_version(subject), UnknownSubjectError, subject)
        if found is None:
            raise _unknown(UnknownSubjectError, subject, self.address)
        return self._parse(found.schema, f"subject {subject!r}")

    def register(self, subject: str, record: Record) -> int:
        """The id of the schema under the subject, which it is added to if it is new there."""
        _check_names(subject, record)
        schema = Schema(record.to_json(), "AVRO")
        return int(
            self._ask(lambda: self._session.client.register_schema(subject, schema), UnknownSubjectError, subject)
        )

    @property
    def address(self) -> str:
        """The address of the registry, for messages."""
        return str(self._config.get("url"))

    def _parse(self, schema: Any, what: str) -> Record:
        if (schema.schema_type or "AVRO") != "AVRO":
            raise RegistryError(f"{what} at {self.address} is of type {schema.schema_type}: only Avro can be read")
        return Record.parse(schema.schema_str, references=self._references(schema))

    def _references(self, schema: Any) -> list[str]:
        """The schemas that this one refers to, each after those that it refers to itself."""
        found: list[str] = []
        for reference in schema.references or ():
            fetch = partial(self._session.client.get_version, reference.subject, reference.version)
            named = self._ask(fetch, UnknownSubjectError, reference.subject).schema
            found += [*self._references(named), str(named.schema_str)]
        return found

    def _ask(self, call: Callable[[], Answer], missing: type[RegistryError], what: object) -> Answer:
        """The answer to a call, its errors as ours."""
        try:
            return call()
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise _unknown(missing, what, self.address) from error
            if error.http_status_code == 409:
                raise IncompatibleSchemaError(
                    f"the registry refuses the schema for subject {what!r}: {error.error_message}. Change the query's "
                    f"columns, write to another topic, or relax the compatibility rule of the subject."
                ) from error
            if error.http_status_code in (401, 403):
                raise RegistryUnreachableError(
                    f"the registry at {self.address} refuses the login (HTTP {error.http_status_code}): "
                    f"check basic.auth.user.info or the token"
                ) from error
            if error.http_status_code >= 500:
                raise self._unreachable(error) from error
            raise RegistryError(f"the registry at {self.address} says: {error}") from error
        except (httpx.HTTPError, OSError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> RegistryUnreachableError:
        return RegistryUnreachableError(
            f"the registry at {self.address} cannot be reached: {error}. Check registry.url and the network, then "
            f"start the job again."
        )


def _unknown(kind: type[RegistryError], what: object, address: str) -> RegistryError:
    if kind is UnknownSchemaError:
        return kind(
            f"no schema has the id {what} at {address}: the record was written with another registry, or the schema "
            f"was deleted"
        )
    return kind(
        f"no schema is registered under subject {what!r} at {address}: check the topic's name, or declare the table's "
        f"columns in the job"
    )


class _Session:
    """A client and the schemas that it has fetched."""

    def __init__(self, config: dict[str, Any]) -> None:
        try:
            self.client = SchemaRegistryClient.new_client(config)
        except (ValueError, TypeError, OSError) as error:
            raise RegistryError(f"the settings of the registry are wrong: {error}") from error
        self.schemas: dict[int | uuid.UUID, Record] = {}


@lru_cache(maxsize=16)
def _session(config: str) -> _Session:
    return _Session(json.loads(config))


class FolderRegistry:
    """A folder of `.avsc` files: subject `orders` is `orders.avsc`, and its next version `orders.v2.avsc`.

    A schema's id is 31 bits of a SHA-256 over it, without documentation and spelled in one way; its GUID is the
    first 16 bytes. So all processes agree on them without asking each other.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._known: dict[int | uuid.UUID, Record] = {}

    def __reduce__(self) -> tuple[type[FolderRegistry], tuple[str]]:
        return type(self), (str(self.path),)

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """The schema with this id or GUID. Raises UnknownSchemaError."""
        if schema_id not in self._known:
            for file in sorted(self.path.glob("*.avsc")):
                record = self._read(file)
                number, guid = identify(record)
                self._known |= {number: record, guid: record}
        if schema_id not in self._known:
            raise _unknown(UnknownSchemaError, schema_id, str(self.path))
        return self._known[schema_id]

    def latest(self, subject: str) -> Record:
        """The newest schema of a subject. Raises UnknownSubjectError."""
        versions = self._versions(subject)
        if not versions:
            raise _unknown(UnknownSubjectError, subject, str(self.path))
        return self._read(versions[max(versions)])

    def register(self, subject: str, record: Record) -> int:
        """The id of the schema under the subject, which gets a further file if it is new there."""
        _check_names(subject, record)
        number, guid = identify(record)
        self.path.mkdir(parents=True, exist_ok=True)
        while True:
            versions = self._versions(subject)
            if not any(identify(self._read(file))[1] == guid for file in versions.values()):
                version = max(versions, default=0) + 1
                name = f"{subject}.avsc" if version == 1 else f"{subject}.v{version}.avsc"
                if not self._write(self.path / name, record):
                    continue  # Another process has just taken the version: look again.
            self._known |= {number: record, guid: record}
            return number

    def _versions(self, subject: str) -> dict[int, Path]:
        found = {}
        for file in self.path.glob("*.avsc"):
            match = _VERSIONED.fullmatch(file.name)
            if match and match["subject"] == subject:
                found[int(match["version"] or 1)] = file
        return found

    @staticmethod
    def _read(file: Path) -> Record:
        try:
            return Record.parse(file.read_bytes())
        except SchemaError as error:
            raise SchemaError(f"{file}: {error}") from None

    @staticmethod
    def _write(file: Path, record: Record) -> bool:
        """Write the whole file or nothing; False if it is there already."""
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".tmp") as part:
            part.write(json.dumps(record.avro, indent=2) + "\n")
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).chmod(0o644)
            try:
                os.link(part.name, file)
            except FileExistsError:
                return False
        return True


def identify(record: Record) -> tuple[int, uuid.UUID]:
    """The id and the GUID that a folder gives to a schema."""
    digest = hashlib.sha256(record.to_json().encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF, uuid.UUID(bytes=digest[:16])


def _check_names(subject: str, record: Record) -> None:
    """Raise SchemaError for a record with names that no other reader of Avro would accept."""
    types = [inner for field in record.fields for inner in field.type.walk()]
    plain = [*record.names, *(field.name for inner in types for field in inner.fields)]
    plain += [symbol for inner in types for symbol in inner.symbols]
    full = [record.name, *(inner.name for inner in types if inner.name)]
    for name in [*plain, *".".join(full).split(".")]:
        if not _NAME.fullmatch(name):
            raise SchemaError(
                f"the schema for subject {subject!r} has the name {name!r}, which Avro does not allow: use letters, "
                f"digits and _ only, for instance by AS in the query"
            )
