"""A row's key and sub-key for its consumer, and salting, which spreads one key over several shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.service.physical.expression import Expression

MOST_SALTS = 1024
"""The largest salt count, equal to the largest number of shards."""


@dataclass(frozen=True)
class Salt:
    """Spreads the rows of one key over `count` shards: as copies to all of them, or dealt out, each row to one shard.

    Rows are dealt by the sub-key if it identifies rows, otherwise by the whole row.
    """

    count: int
    deal: Literal["by sub-key", "by row", "copies"]


@dataclass(frozen=True)
class Key:
    """How the key of an edge is made from the columns of the calc's *input*.

    - `parts`: one expression per key column, already cast to the type that both sides of the consumer share.
    - `null_safe`: per part, whether NULL equals NULL (`IS NOT DISTINCT FROM`, GROUP BY, unique keys).
    - `drop_null`: a row whose key has a NULL in a part that is not null safe is dropped (inner joins). Otherwise the
      row stays, with a null key and a hash of its whole row (outer joins).
    - `record`: if the consumer is a Kafka topic, the Avro schema of the topic's key. The key bytes are then that Avro
      record instead of comparable bytes. Otherwise None.
    - `constant`: instead of parts, the same bytes for every row, and every row goes to every shard of the consumer.
      This serves facts that depend on all rows of the input.
    - `salt`: set if the rows of one key are spread over several shards.
    - `apart`: this many last parts, each TIMESTAMP NOT NULL, distinguish keys but do not decide on the shard. Keys that
      differ only in these parts are in the same shard.
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
        """The parts that decide on the shard."""
        return self.parts[: len(self.parts) - self.apart]


@dataclass(frozen=True)
class SubKeyPart:
    """One part of a sub-key: an expression and how its comparable bytes sort."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True
