"""Errors of schemas, values and registries.

AvroError
├── SchemaError                  a schema or an SQL type that is invalid or not supported: fix the schema or the job
│   └── ResolutionError          a writer's schema that is incompatible with the table's columns; names the column
├── EncodeError                  a column that does not fit its schema: NULL in a NOT NULL field, …
└── RegistryError                a request to the schema registry failed
    ├── RegistryUnreachableError no answer in time, an invalid answer, or a refused login
    ├── UnknownSchemaError       no schema has this id: the record was written with another registry
    ├── UnknownSubjectError      no schema was ever registered under this subject: check the name or register one
    └── IncompatibleSchemaError  the registry's compatibility rule refuses the schema: change the columns or the rule

Bad values raise no errors: the codec marks their rows and gives a reason for each.
"""

from __future__ import annotations

from rowkind.errors import REFUSED, UNREACHABLE, RowkindError


class AvroError(RowkindError):
    """Base class of all errors that this package raises deliberately."""

    exit_code = REFUSED


class SchemaError(AvroError):
    """A schema or an SQL type is invalid or not supported. Fix the schema or the type."""


class ResolutionError(SchemaError):
    """A writer's schema is incompatible with the table's columns; `field` is the column's name or a dotted path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[type[ResolutionError], tuple[str, str]]:
        return type(self), (self.field, str(self))


class EncodeError(AvroError):
    """A column does not fit the schema with which it is encoded."""


class RegistryError(AvroError):
    """A request to the schema registry failed. Check `registry` in the job, and the answer quoted in the message."""


class RegistryUnreachableError(RegistryError):
    """The registry, or a proxy in front of it, does not answer in time or does not give a valid answer.

    Check `registry.url`, the network, the credentials, and any proxy in between. A running job waits until the registry
    answers.
    """

    exit_code = UNREACHABLE
    retryable = True

    def __init__(self, message: str, *, listens: bool = False) -> None:
        super().__init__(message)
        self.listens = listens
        """Whether a server was reached and may answer later. If false, no server was reached, or it refuses the login.
        """


class UnknownSchemaError(RegistryError):
    """The registry has no schema with the id that a record carries.

    The record was written with another registry, or its schema was permanently deleted. Register the schema again, or
    correct `registry` in the job.
    """


class UnknownSubjectError(RegistryError):
    """No schema was ever registered under this subject.

    Check the topic's name and the registry, or declare the table's columns in the job.
    """


class IncompatibleSchemaError(RegistryError):
    """The registry's compatibility rule for the subject refuses the schema.

    Change the query's columns, write to another topic, or relax the rule for the subject.
    """
