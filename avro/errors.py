"""What can go wrong with schemas, values and registries.

AvroError
├── SchemaError                  a schema or an SQL type that cannot be understood or used: mend the schema or the job
│   └── ResolutionError          a writer's schema that cannot be read as the table's columns; names the column
├── EncodeError                  a column that does not fit the schema it is written under: NULL where none may be, …
└── RegistryError                the schema registry could not do what was asked
    ├── RegistryUnreachableError it does not answer as a registry does, not in time, or refuses the login
    ├── UnknownSchemaError       no schema has this id: the record was written with another registry
    ├── UnknownSubjectError      no schema was ever registered under this subject: check the name or register one
    └── IncompatibleSchemaError  the registry's compatibility rule refuses the schema: change the columns or the rule

Bad values are no exceptions: the codec marks their rows and gives a reason for each.
"""

from __future__ import annotations

from rowkind.errors import REFUSED, UNREACHABLE, RowkindError


class AvroError(RowkindError):
    """The root of everything this package raises on purpose."""

    exit_code = REFUSED


class SchemaError(AvroError):
    """A schema or an SQL type that cannot be understood or used. The text says where and what would be accepted."""


class ResolutionError(SchemaError):
    """A writer's schema that cannot be read as the table's columns; `field` is the column, dotted where nested."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[type[ResolutionError], tuple[str, str]]:
        return type(self), (self.field, str(self))


class EncodeError(AvroError):
    """A column that does not fit the schema it is to be written under."""


class RegistryError(AvroError):
    """The schema registry could not do what was asked."""


class RegistryUnreachableError(RegistryError):
    """The registry, or a proxy in front of it, does not answer as a registry does, or not in time.

    Check `registry.url`, the network, the credentials, and what lies between. A running job waits until it answers.
    `listens`: a server is there and may answer later; else nothing is, or it refuses the login.
    """

    exit_code = UNREACHABLE
    retryable = True

    def __init__(self, message: str, *, listens: bool = False) -> None:
        super().__init__(message)
        self.listens = listens


class UnknownSchemaError(RegistryError):
    """The registry has no schema with the id that a record carries.

    The record was written with another registry, or its schema was deleted for good.
    """


class UnknownSubjectError(RegistryError):
    """No schema was ever registered under this subject.

    Check the topic's name and the registry; or declare the table's columns in the job.
    """


class IncompatibleSchemaError(RegistryError):
    """The registry's compatibility rule for the subject refuses the schema.

    Change the query's columns, write to another topic, or relax the rule for the subject.
    """
