"""A client for schema registries with Confluent's HTTP interface.

This is a separate module because the client and its dependencies take 0.25 s and 20 MB to load, in every process of a
job. Fetched schemas are kept for the life of the process, and shared by all registries with the same settings.

A schema or subject is treated as unknown only if the registry says so with an error code of its API. Any other failure
is an outage: HTTP 429 and 5xx, a redirect, a proxy's page, or no answer in time.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from rowkind.avro.errors import (
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnreachableError,
    SchemaError,
    UnknownSchemaError,
    UnknownSubjectError,
)
from rowkind.avro.registry import TIMEOUT, check_names, client_settings, listeners, unknown
from rowkind.avro.schema import Record

try:  # The client raises the errors of the first of these two packages that it finds.
    import httpx2 as httpx
except ImportError:
    import httpx  # type: ignore[no-redef,import-not-found,unused-ignore]

Answer = TypeVar("Answer")

_NO_SCHEMA = {40400, 40403}
"""The registry's error codes for an unknown id; 40400 is the code that the client's own mock returns."""

_NO_GUIDS = 404
"""The error code of registries that do not have this path because they are older than GUIDs."""

_NO_SUBJECT = {40400, 40401, 40402, 40403}
_INVALID = 422
_LONGEST_WORDS = 200


class ConfluentRegistry:
    """A registry with Confluent's HTTP interface.

    `config` has the settings of Confluent's Python client, with names as in librdkafka. For example `{"url":
    "https://…", "basic.auth.user.info": "user:password", "ssl.ca.location": "ca.pem"}`. The setting `timeout` is the
    maximum duration of a call, in seconds, including all retries, even if the answer arrives slowly.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._session = _session(json.dumps(self._config, sort_keys=True))

    def __reduce__(self) -> tuple[type[ConfluentRegistry], tuple[dict[str, Any]]]:
        return type(self), (self._config,)

    def schema_by_id(self, schema_id: int | uuid.UUID) -> Record:
        """Return the schema with this id or GUID. Raises UnknownSchemaError."""
        known = self._session.schemas.get(schema_id)
        if known is None:
            known = self._session.schemas[schema_id] = self._fetched(schema_id)
        if isinstance(known, SchemaError):
            raise known
        return known

    def latest(self, subject: str) -> Record:
        """Return the newest schema of a subject. Raises UnknownSubjectError."""
        self._session.client.clear_latest_caches()  # type: ignore[no-untyped-call]
        found = self._ask(lambda client: client.get_latest_version(subject), lambda error: self._no(error, subject))
        if found is None:
            raise unknown(UnknownSubjectError, subject, self.address)
        return self._parse(found.schema, f"subject {subject!r}")

    def register(self, subject: str, record: Record) -> int:
        """Register the schema under the subject if it is not registered there yet, and return its id."""
        check_names(subject, record)
        schema = Schema(record.to_json(), "AVRO")

        def refused(error: SchemaRegistryError) -> RegistryError | None:
            if error.http_status_code == 409:
                return IncompatibleSchemaError(
                    f"the registry refuses the schema for subject {subject!r}: {error.error_message}. Change the "
                    f"query's columns, write to another topic, or relax the compatibility rule of the subject."
                )
            if error.http_status_code == _INVALID and error.error_code != SchemaRegistryError.UNKNOWN:
                return RegistryError(f"the registry at {self.address} returned an error: {error}")
            return None

        return self._ask(lambda client: int(client.register_schema(subject, schema)), refused)

    @property
    def address(self) -> str:
        """The registry's address for messages, without credentials."""
        return re.sub(r"//[^/@]*@", "//", str(self._config.get("url")))

    def _fetched(self, schema_id: int | uuid.UUID) -> Record | SchemaError:
        """Fetch the schema with this id. Return the schema, or the error in its text; neither ever changes."""

        def missing(error: SchemaRegistryError) -> RegistryError | None:
            by_guid = isinstance(schema_id, uuid.UUID) and error.error_code == _NO_GUIDS
            known = error.http_status_code == 404 and (error.error_code in _NO_SCHEMA or by_guid)
            return unknown(UnknownSchemaError, schema_id, self.address) if known else None

        def call(client: SchemaRegistryClient) -> Any:
            if isinstance(schema_id, uuid.UUID):
                return client.get_schema_by_guid(str(schema_id))
            return client.get_schema(schema_id)

        found = self._ask(call, missing)
        try:
            return self._parse(found, f"schema {schema_id}")
        except SchemaError as error:
            return error

    def _no(self, error: SchemaRegistryError, subject: str) -> RegistryError | None:
        known = error.http_status_code == 404 and error.error_code in _NO_SUBJECT
        return unknown(UnknownSubjectError, subject, self.address) if known else None

    def _parse(self, schema: Any, what: str) -> Record:
        if (schema.schema_type or "AVRO") != "AVRO":
            raise RegistryError(f"{what} at {self.address} has type {schema.schema_type}; only Avro is supported")
        if not isinstance(schema.schema_str, str):
            raise self._failing(f"its answer for {what} contains no schema")
        return Record.parse(schema.schema_str, references=self._references(schema))

    def _references(self, schema: Any) -> list[str]:
        """Return the schemas to which `schema` refers, directly or indirectly.

        Each schema comes after the schemas that it needs.
        """
        found: list[str] = []
        for reference in schema.references or ():
            name, version = reference.subject, reference.version

            def call(client: SchemaRegistryClient, name: str = name, version: int = version) -> Any:
                return client.get_version(name, version)

            def missing(error: SchemaRegistryError, name: str = name) -> RegistryError | None:
                return self._no(error, name)

            named = self._ask(call, missing).schema
            found += [*self._references(named), str(named.schema_str)]
        return found

    def _ask(
        self,
        call: Callable[[SchemaRegistryClient], Answer],
        meant: Callable[[SchemaRegistryError], RegistryError | None],
    ) -> Answer:
        """Make a call, return its answer, and translate its errors.

        `meant` translates the errors that are answers to the request, such as an unknown subject. All other errors are
        outages.
        """
        try:
            found = self._session.within(call, self._unanswered)
        except SchemaRegistryError as error:
            if (own := meant(error)) is not None:
                self._answered()
                raise own from error
            if error.http_status_code in (401, 403):
                self._unanswered("it refuses the login")
                raise RegistryUnreachableError(
                    f"the registry at {self.address} refuses the login (HTTP {error.http_status_code}): "
                    f"check basic.auth.user.info or the token"
                ) from error
            raise self._failing(_http(error)) from error
        except httpx.ConnectError as error:
            self._unanswered(_line(error))
            raise RegistryUnreachableError(
                f"the registry at {self.address} cannot be reached: {_line(error)}. Check registry.url and the network."
            ) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise self._failing(f"no answer within {self._session.seconds:g} s") from error
        except ValueError as error:
            raise self._failing(f"its answer is not JSON ({_line(error)})") from error
        except Exception as error:  # the client may raise anything if the answer is not from a registry
            raise self._failing(f"{type(error).__name__}: {_line(error)}") from error
        self._answered()
        return found

    def _unanswered(self, why: str) -> None:
        seconds = time.monotonic() - self._session.since
        for listener in listeners:
            listener(self.address, seconds, why)

    def _answered(self) -> None:
        self._session.since = math.inf
        for listener in listeners:
            listener(self.address, None, "")

    def _failing(self, why: str) -> RegistryUnreachableError:
        # The client caches an answer even if it lacks the requested content.
        self._session.client.clear_caches()  # type: ignore[no-untyped-call]
        self._unanswered(why)
        return RegistryUnreachableError(
            f"the registry at {self.address} did not give a valid answer: {why}. Check the registry, and any proxy in "
            f"front of it. A running job waits until the registry answers.",
            listens=True,
        )


def _http(error: SchemaRegistryError) -> str:
    """Describe an HTTP error in a registry's answer."""
    status = error.http_status_code
    if 300 <= status < 400:
        return (
            f"it redirects to another address (HTTP {status}), which is not followed: set registry.url to the final "
            f"address"
        )
    return f"HTTP {status}, {_line(error.error_message or 'no message')}"


def _line(said: object) -> str:
    """Return an error's text as one line of limited length."""
    text = " ".join(str(said).split())
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}…"


class _Session:
    """A client, with the schemas that it has fetched, or the errors in them."""

    def __init__(self, config: dict[str, Any]) -> None:
        try:
            self._settings = client_settings(config)
            self.client = SchemaRegistryClient.new_client(self._settings)
        except (ValueError, TypeError, OSError) as error:
            raise RegistryError(f"the registry settings are invalid: {error}") from error
        self.seconds: float = self._settings[TIMEOUT]
        self.schemas: dict[int | uuid.UUID, Record | SchemaError] = {}
        self.since = math.inf
        """The monotonic time since which no request has been answered; infinity if the last request was answered."""

    def within(self, call: Callable[[SchemaRegistryClient], Answer], waits: Callable[[str], None]) -> Answer:
        """Return the answer to a call, which may take `seconds` in total. Until it arrives, call `waits` every second.

        Raises TimeoutError.

        The client's own timeout applies to each wait for a byte, and covers neither name resolution nor retries. The
        call therefore runs in a thread, which ends with its connection when the client is closed.
        """
        answer: Future[Answer] = Future()
        client = self.client

        def run() -> None:
            try:
                answer.set_result(call(client))
            except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
                answer.set_exception(error)

        begun = time.monotonic()
        self.since = min(self.since, begun)
        threading.Thread(target=run, name="registry", daemon=True).start()
        while not answer.done() and (left := begun + self.seconds - time.monotonic()) > 0:
            with suppress(TimeoutError):
                answer.exception(min(1.0, left))
            if not answer.done():
                waits("it has not answered")
        if not answer.done():
            self.client = SchemaRegistryClient.new_client(self._settings)
            with suppress(Exception):  # the client is discarded even if closing it fails
                client.close()
            raise TimeoutError
        return answer.result()


@lru_cache(maxsize=16)
def _session(config: str) -> _Session:
    return _Session(json.loads(config))
