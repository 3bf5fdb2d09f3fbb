"""How a row's key and sub-key for its consumer are made, and how rows of one key get to several shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rowkind.avro.schema import Record
from rowkind.service.physical.expression import Expression

MOST_SALTS = 1024
"""No more than there may be shards."""


@dataclass(frozen=True)
class Salt:
    """How the rows of one key get to `count` shards: as copies to all of them, or dealt out by what tells them apart.

    That is the sub-key where it identifies rows, and all of the row elsewhere.
    """

    count: int
    deal: Literal["by sub-key", "by row", "copies"]


@dataclass(frozen=True)
class Key:
    """How the key of an edge is made from the columns of the calc's *input*.

    - `parts`: one expression per key column, already cast to the type that both sides of the consumer share.
    - `null_safe`: per part, whether NULL equals NULL (`IS NOT DISTINCT FROM`, GROUP BY, unique keys).
    - `drop_null`: a row whose key has a NULL in a part that is not null safe is dropped (inner joins), else it stays
      with a null key and a hash of its whole row (outer joins).
    - `record`: where the consumer is a Kafka topic, the Avro schema of the topic's key: the key bytes are then that
      Avro record and not comparable bytes. None elsewhere.
    - `constant`: instead of parts, the same bytes for every row, and every row goes to every shard of the consumer:
      a fact about the input as a whole.
    - `salt`: if the rows of one key are to be in several shards.
    - `apart`: the last so many parts, TIMESTAMP NOT NULL each, tell keys apart but have no say in which shard: keys
      that are equal but for them are together.
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
