"""Schema registries: the interface, and a registry in a local folder.

Registries are pickled as their settings. They cache fetched schemas, because ids and GUIDs never change their meaning.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rowkind.avro.errors import RegistryError, SchemaError, UnknownSchemaError, UnknownSubjectError
from rowkind.avro.schema import Record

_VERSIONED = re.compile(r"(?P<subject>.+?)(?:\.v(?P<version>[0-9]+))?\.avsc")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

TIMEOUT = "timeout"
ANSWER_SECONDS = 10.0
"""The default of `timeout`: how many seconds a registry has to answer one call, including retries."""

_NUMBERS = {TIMEOUT, "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec"}
"""Settings of Confluent's client that must be numbers; in a job file all settings are text."""


Unanswered = Callable[[str, float | None, str], None]
"""Receives a registry's address, the number of seconds without an answer (None once the registry answers), and why."""

listeners: list[Unanswered] = []
"""The callbacks of this process; the thread that waits for a registry calls them every second."""


class Registry(Protocol):
    """A store of schemas. Each call may raise any RegistryError."""

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """Return the schema with this id or GUID. Raises UnknownSchemaError."""

    def latest(self, subject: str) -> Record:
        """Return the newest schema of a subject. Raises UnknownSubjectError."""

    def register(self, subject: str, record: Record) -> int:
        """Register the schema under the subject if it is not registered there yet, and return its id."""


class FolderRegistry:
    """A folder of `.avsc` files: subject `orders` is `orders.avsc`, and its next version is `orders.v2.avsc`.

    A schema's id is 31 bits of the SHA-256 digest of its canonical form, without documentation and Connect's names; its
    GUID is the digest's first 16 bytes. All processes therefore agree on ids without communication.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._known: dict[int | uuid.UUID, Record] = {}

    def __reduce__(self) -> tuple[type[FolderRegistry], tuple[str]]:
        return type(self), (str(self.path),)

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """Return the schema with this id or GUID. Raises UnknownSchemaError."""
        if schema_id not in self._known:
            for file in sorted(self.path.glob("*.avsc")):
                record = self._read(file)
                number, guid = identify(record)
                self._known |= {number: record, guid: record}
        if schema_id not in self._known:
            raise unknown(UnknownSchemaError, schema_id, str(self.path))
        return self._known[schema_id]

    def latest(self, subject: str) -> Record:
        """Return the newest schema of a subject. Raises UnknownSubjectError."""
        versions = self._versions(subject)
        if not versions:
            raise unknown(UnknownSubjectError, subject, str(self.path))
        return self._read(versions[max(versions)])

    def register(self, subject: str, record: Record) -> int:
        """Return the schema's id. If the schema is not registered under the subject yet, write it to a new file."""
        check_names(subject, record)
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

    def subjects(self) -> list[str]:
        """Return all subjects."""
        matches = (_VERSIONED.fullmatch(file.name) for file in self.path.glob("*.avsc"))
        return sorted({match["subject"] for match in matches if match})

    def versions(self, subject: str) -> dict[int, Record]:
        """Return the schemas of a subject by version."""
        return {version: self._read(file) for version, file in sorted(self._versions(subject).items())}

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
        """Write the whole file or nothing. Return False if the file already exists."""
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


class NoRegistry:
    """The registry of a job without a configured registry: no schema is known, and none can be registered."""

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """Raise UnknownSchemaError."""
        raise UnknownSchemaError(f"schema id {schema_id} cannot be looked up: the job has no `registry`")

    def latest(self, subject: str) -> Record:
        """Raise UnknownSubjectError."""
        raise UnknownSubjectError(f"subject {subject!r} cannot be looked up: the job has no `registry`")

    def register(self, subject: str, record: Record) -> int:
        """Raise RegistryError."""
        del record
        raise RegistryError(f"subject {subject!r} cannot be registered: the job has no `registry`")


def client_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for Confluent's client. Raises ValueError if a setting that must be a number is not."""
    settings: dict[str, Any] = {TIMEOUT: ANSWER_SECONDS, **config}
    for name in settings.keys() & _NUMBERS:
        try:
            number = float(settings[name])
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < 0 or (name == TIMEOUT and not number):
            wanted = "a number of seconds above 0" if name == TIMEOUT else "a number, 0 or more"
            raise ValueError(f"`{name}` must be {wanted}, not {settings[name]!r}")
        settings[name] = number
    return settings


def identify(record: Record) -> tuple[int, uuid.UUID]:
    """Return the id and the GUID that a folder registry gives to a schema."""
    digest = hashlib.sha256(record.plain.to_json().encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF, uuid.UUID(bytes=digest[:16])


def check_names(subject: str, record: Record) -> None:
    """Raise SchemaError for a record with names that Avro does not allow."""
    types = [inner for field in record.fields for inner in field.type.walk()]
    plain = [*record.names, *(field.name for inner in types for field in inner.fields)]
    plain += [symbol for inner in types for symbol in inner.symbols]
    full = [record.name, *(inner.name for inner in types if inner.name)]
    for name in [*plain, *".".join(full).split(".")]:
        if not _NAME.fullmatch(name):
            raise SchemaError(
                f"the schema for subject {subject!r} has the name {name!r}, which Avro does not allow: use letters, "
                f"digits and _ only, for example with AS in the query"
            )


def unknown(kind: type[RegistryError], what: object, address: str) -> RegistryError:
    """Return the error for a schema, given by id or subject, that the registry at `address` does not have."""
    if kind is UnknownSchemaError:
        return kind(
            f"no schema has the id {what} at {address}: the record was written with another registry, or the schema "
            f"was deleted"
        )
    return kind(
        f"no schema is registered under subject {what!r} at {address}: check the topic's name, or declare the table's "
        f"columns in the job"
    )
