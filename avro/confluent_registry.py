"""Schemas in a registry with Confluent's HTTP interface.

In a module of its own, because its client and what that brings along take a quarter of a second and 20 MB to load, in
every process that a job has. What was learned is kept for the life of the process and shared by all registries with the
same settings.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from rowkind.avro.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnreachableError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from rowkind.avro.registry import check_names, unknown
from rowkind.avro.schema import Record

try:  # The client raises the errors of whichever of the two it finds, in this order.
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[no-redef,import-not-found,unused-ignore]

Answer = TypeVar("Answer")


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
            raise unknown(UnknownSubjectError, subject, self.address)
        return self._parse(found.schema, f"subject {subject!r}")

    def register(self, subject: str, record: Record) -> int:
        """The id of the schema under the subject, which it is added to if it is new there."""
        check_names(subject, record)
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
                raise unknown(missing, what, self.address) from error
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
