"""Run a processor over Spark's in-memory test double of state, one shard at a time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Changes
from rowkind.service.execute.members import Member, Wrap, addressed
from rowkind.service.spark.cache import CacheLimits
from rowkind.service.spark.processor import Level, OperatorProcessor
from tests.spark.distinct import Distinct, unpacked, way_out
from tests.spark.running import LEVEL, SINK, WRITER

Edge = tuple[int, int, bytes]
"""A row of an edge: label, level and block."""


@dataclass(frozen=True)
class Sent:
    """The blocks that a batch has sent, each with label and level."""

    blocks: list[tuple[int, int, Block]]

    @classmethod
    def of(cls, edges: Sequence[Edge]) -> Sent:
        """Read the blocks of edges."""
        return cls([(label, level, Block.from_bytes(block)) for label, level, block in edges])

    @property
    def counters(self) -> Mapping[str, float]:
        """The counters of the batch, which are in one block."""
        (counters,) = [block.counters for _, _, block in self.blocks if block.counters]
        return counters

    @property
    def batch(self) -> Batch:
        """All blocks as one batch."""
        return Batch.concat([block.batch for _, _, block in self.blocks])

    @property
    def changes(self) -> Changes:
        """All changes."""
        return self.batch.changes

    @property
    def rows(self) -> list[bytes]:
        """The bytes of all rows."""
        return sorted(unpacked(self.changes.payload))

    def rows_for(self, place: int) -> list[bytes]:
        """Return the bytes of the rows for one consumer."""
        return sorted(unpacked(addressed(self.batch, place).changes.payload))


class Running:
    """A processor over Spark's in-memory test double of state; a level with one operator if no members are given."""

    def __init__(
        self,
        labels: Sequence[int] = (0,),
        *,
        members: Sequence[Member] | None = None,
        level: int = LEVEL,
        writer: int = WRITER,
        wrap: Wrap | None = None,
        **options: Any,
    ) -> None:
        if members is None:
            members = [Member(0, SINK, "distinct", "state", Distinct(), (way_out(level=writer),), wrap=wrap)]
        processor = OperatorProcessor(Level(members, level, writer, labels), limits=CacheLimits(0, 0), **options)
        self._level = level
        self._tester = TwsTester(pickle.loads(pickle.dumps(processor)))

    def edges(self, *edges: Edge, label: int = 0, now: int = 1000) -> list[Edge]:
        """Return the edges that one shard emits for a batch of edges at time `now`, in ms."""
        rows = [Row(shard=shard, level=level, block=block, now=now) for shard, level, block in edges]
        return [(row.shard, row.level, row.block) for row in self._tester.test(label, rows)]

    def batch(self, *blocks: Block, label: int = 0, now: int = 1000) -> Sent:
        """Return the output for a batch of blocks at this level."""
        return Sent.of(self.edges(*((label, self._level, each.to_bytes()) for each in blocks), label=label, now=now))
