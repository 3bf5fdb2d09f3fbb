"""Routing of rows from an exit to its consumer. The calc is applied, and each change gets an address and a shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.order import TIMESTAMP_BYTES
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Uint64s, binary
from rowkind.operators.columns.emission import net
from rowkind.operators.columns.hashing import hash64
from rowkind.service.execute import failures
from rowkind.service.execute.blocks import cut, edge_rows
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import address
from rowkind.service.execute.metrics import add
from rowkind.service.physical.graph import Exit, GraphScan
from rowkind.service.physical.keys import Key

Part = tuple[int, int, Batch]
"""A batch for one shard of a level: the shard, the level, and the batch, whose changes have addresses."""


def leave(way: Exit, emitted: Emitted, failure: OnFailure) -> Batch:
    """Return the batch that an exit sends. Its changes have no addresses yet. Raises ExpressionError."""
    batch = failures.run(way.calc, emitted, failure)
    if way.nets is not None:
        # Changes that no consumer needs are dropped before the shuffle.
        return replace(batch, changes=net(batch.changes, "upsert", keyed=True, by_seq=way.nets == "by seq"))
    return batch


def deliver(way: Exit, batch: Batch, shards: int, own: int | None = None) -> Iterator[Part]:
    """Yield an exit's batch, split by shard. `own` is the shard from which the batch comes, or None for a scan."""
    batch = address(batch, way.to)
    if way.calc.key.constant is not None:
        yield from ((shard, way.level, batch) for shard in range(shards))
    elif way.stays and own is not None:
        yield own, way.level, batch
    else:
        for shard, (changes, refreshes) in enumerate(
            zip(_split(way, batch.changes, shards), _split(way, batch.refreshes, shards), strict=True)
        ):
            # A truncation concerns all rows of the table, in every shard.
            yield shard, way.level, Batch(changes, refreshes, batch.truncations)


def _split(way: Exit, changes: Changes, shards: int) -> list[Changes]:
    """Split the changes by shard."""
    if way.spreads:
        # The shard depends on the row's content, so that a row and its retraction still go to the same shard.
        changes = replace(changes, hash=hash64(changes.payload))
    return changes.split(shards, _decisive(way.calc.key, changes))


def _decisive(key: Key, changes: Changes) -> Uint64s | None:
    """Return the hash of those key parts that choose the shard, or None if all parts do."""
    if not key.apart or not len(changes):
        return None
    return hash64(pc.binary_slice(changes.key, 0, -key.apart * TIMESTAMP_BYTES))


def scanned(
    scan: GraphScan,
    emitted: Emitted,
    shards: int,
    failure: OnFailure | None = None,
    counters: dict[str, float] | None = None,
) -> Iterator[Part]:
    """Yield a scan's output, split by shard. Add the changes on each edge to `counters`. Raises ExpressionError."""
    for way in scan.exits:
        batch = leave(way, emitted, failure or of_table(scan))
        if counters is not None:
            add(counters, edge_rows(scan.scan.source.table, way.into, len(batch.changes)))
        yield from deliver(way, batch, shards)


def spread(letters: pa.BinaryArray, writer: int, shards: int) -> Iterator[Part]:
    """Yield dead letters for the writer, spread over the shards by their content."""
    shard = hash64(letters) % np.uint64(shards)
    for each in np.unique(shard).tolist():
        yield each, writer, Batch.of_letters(letters.filter(pa.array(shard == each)))


def of_table(scan: GraphScan) -> OnFailure:
    """Return a policy with the table's name for error messages, and with defaults for everything else."""
    return OnFailure(scan.scan.source.table)


def pieces(parts: Iterable[Part]) -> Iterator[Part]:
    """Combine the parts for each shard and level, and yield them in block-sized pieces."""
    together: dict[tuple[int, int], list[Batch]] = defaultdict(list)
    for shard, level, batch in parts:
        if len(batch):
            together[shard, level].append(batch)
    for (shard, level), several in together.items():
        for piece in cut(Batch.concat(several)):
            yield shard, level, piece


def shard_without_key(shards: int) -> int:
    """Return the shard for rows with an empty key."""
    return int(hash64(binary([b""]))[0] % shards)
