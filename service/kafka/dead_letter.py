"""Dead letters: records that could not be turned into rows. This module encodes them in a query and in their topic.

Within a query, `DeadLetter.to_bytes` encodes a dead letter, which is sent together with a batch's changes. The writer
writes it to the topic with the original key, value and headers unchanged. The writer adds Kafka Connect's
`__connect.errors.` headers as UTF-8 text, and one more header with the original timestamp. An existing header is never
replaced.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Self

import fastavro

from rowkind.service.kafka.headers import HeaderList

PREFIX = "__connect.errors."

READING = ("row kind", "changelog", "framing", "schema", "value", "key")
"""The stages at which a record fails in every query. At other stages, a record may fail in only some of the queries."""

EXPRESSION = "expression"
"""The stage of a dead letter for a row on which one of the query's expressions failed."""

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "DeadLetter",
        "namespace": "rowkind",
        "fields": [
            {"name": "table", "type": "string"},
            {"name": "topic", "type": ["null", "string"]},
            {"name": "partition", "type": ["null", "int"]},
            {"name": "offset", "type": ["null", "long"]},
            {"name": "timestamp", "type": ["null", "long"]},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
                    },
                },
            },
            {"name": "stage", "type": "string"},
            {"name": "error", "type": "string"},
            {"name": "message", "type": "string"},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be turned into a row, with its content, its origin, and the reason.

    `stage` is the stage at which the record failed: one of `READING`, `EXPRESSION`, or an operator. `error` is the name
    of the error's class. `timestamp` is the original record's timestamp, in ms since the epoch.
    """

    table: str
    stage: str
    error: str
    message: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def to_bytes(self) -> bytes:
        """Encode this dead letter for transport within the query."""
        output = io.BytesIO()
        headers = [{"name": name, "value": value} for name, value in self.headers]
        fastavro.schemaless_writer(output, _SCHEMA, asdict(self) | {"headers": headers})
        return output.getvalue()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Self:
        """Restore a dead letter that `to_bytes` encoded."""
        fields = fastavro.schemaless_reader(io.BytesIO(payload), _SCHEMA, None)
        assert isinstance(fields, dict), "the schema is a record"
        fields["headers"] = tuple((header["name"], header["value"]) for header in fields["headers"])
        return cls(**fields)

    def written_headers(self, job: str, query: str) -> HeaderList:
        """Return the original headers, in their order, followed by the error headers."""
        told = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "connector.name": job,
            "task.id": query,
            "stage": self.stage,
            "exception.class.name": self.error,
            "exception.message": self.message,
        }
        present = {name for name, _ in self.headers}
        return [
            *self.headers,
            *(
                (PREFIX + name, str(value).encode())
                for name, value in told.items()
                if value is not None and PREFIX + name not in present
            ),
        ]
