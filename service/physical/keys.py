"""Keys and sub-keys of rows, and salting, which spreads rows with the same key over several shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.service.physical.expression import Expression

MOST_SALTS = 1024
"""The maximum number of salts. It equals the maximum number of shards."""


@dataclass(frozen=True)
class Salt:
    """A salt, which spreads rows with the same key over `count` shards.

    Either each row is copied to all shards, or each row goes to one shard. In the second case, the shard depends on the
    sub-key if the sub-key identifies rows, otherwise on the whole row.
    """

    count: int
    deal: Literal["by sub-key", "by row", "copies"]


@dataclass(frozen=True)
class Key:
    """The key of an edge, computed from the columns of the calc's *input*.

    - `parts`: one expression per key column, cast to the type in which both sides of the consumer compare the key.
    - `null_safe`: for each part, whether NULL equals NULL (`IS NOT DISTINCT FROM`, GROUP BY, unique keys).
    - `drop_null`: whether a row is dropped if a key part that is not null safe is NULL (inner joins). Otherwise the row
      is passed on with a null key and a hash of the whole row (outer joins).
    - `record`: the Avro schema of the topic's key if the consumer is a Kafka topic, otherwise None. If it is set, the
      key bytes are an Avro record instead of comparable bytes.
    - `constant`: key bytes that all rows share, instead of `parts`. Every row then goes to every shard of the consumer.
      It is used for facts that depend on all rows of the input.
    - `salt`: set if rows with the same key are spread over several shards.
    - `apart`: the number of trailing parts, each TIMESTAMP NOT NULL, that distinguish keys but do not affect the shard.
    """

    parts: tuple[Expression, ...] = ()
    null_safe: tuple[bool, ...] = ()
    drop_null: bool = False
    record: Record | None = None
    constant: bytes | None = None
    salt: Salt | None = None
    apart: int = 0

    @property
    def decisive(self) -> tuple[Expression, ...]:
        """The parts that choose the shard."""
        return self.parts[: len(self.parts) - self.apart]


@dataclass(frozen=True)
class SubKeyPart:
    """One part of a sub-key: an expression, and the sort order of its comparable bytes."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True
