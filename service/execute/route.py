"""The ways from an exit to its consumer: what the calc makes of rows, addressed, and in which shard it belongs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from rowkind.avro.order import TIMESTAMP_BYTES
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, Int64s, Rows, Uint64s, binary, constant
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.emission import net
from rowkind.service.execute import failures
from rowkind.service.execute.blocks import cut
from rowkind.service.execute.failures import OnFailure
from rowkind.service.execute.members import address
from rowkind.service.graph import Exit, GraphScan
from rowkind.service.keys import Key

Part = tuple[int, int, Changes]
"""Changes for a shard of a level: the shard, the level, and the changes under the addresses of their consumers."""


def leave(way: Exit, rows: Rows, failure: OnFailure) -> Changes:
    """What goes this way out of the rows of a scan or an operator, not addressed. Raises ExpressionError."""
    truncations = rows.kind == RowKind.TRUNCATION
    if truncations.any():
        others = leave(way, rows.filter(~truncations), failure)
        return Changes.concat([others, _truncations(way.calc.side, rows.seq[truncations])])
    if not way.calc.refreshes:
        rows = rows.filter(rows.kind != RowKind.REFRESH)
    changes = failures.run(way.calc, rows, failure)
    if way.nets is not None:
        # What nobody needs to know of is not shuffled first.
        return net(changes, "upsert", keyed=True, by_seq=way.nets == "by seq")
    return changes


def _truncations(side: int, seq: Int64s) -> Changes:
    """Truncations with these arrival numbers, for an input of a consumer: they have no row and no key."""
    count = len(seq)
    kind, none = np.full(count, RowKind.TRUNCATION, np.int8), constant(b"", count)
    return Changes(np.full(count, side, np.int8), kind, np.zeros(count, np.uint64), none, none, seq, none)


def deliver(way: Exit, changes: Changes, shards: int, own: int | None = None) -> Iterator[Part]:
    """What goes this way, by shard. `own` is the shard that it comes from, None for a scan, which has none."""
    changes = address(changes, way.to)
    truncations = changes.kind == RowKind.TRUNCATION
    if truncations.any():
        yield from ((shard, way.level, changes.filter(truncations)) for shard in range(shards))
        changes = changes.filter(~truncations)
    if way.calc.key.constant is not None:
        yield from ((shard, way.level, changes) for shard in range(shards))
    elif way.stays and own is not None:
        yield own, way.level, changes
    else:
        if way.spreads:
            # By content, so that a row and its retraction still meet.
            changes = replace(changes, hash=hash64(changes.payload))
        parts = changes.split(shards, _decisive(way.calc.key, changes))
        yield from ((shard, way.level, part) for shard, part in enumerate(parts))


def _decisive(key: Key, changes: Changes) -> Uint64s | None:
    """The hashes of those parts of the key that decide on the shard, None where all do."""
    if not key.apart or not len(changes):
        return None
    return hash64(pc.binary_slice(changes.key, 0, -key.apart * TIMESTAMP_BYTES))


def scanned(scan: GraphScan, rows: Rows, shards: int, failure: OnFailure | None = None) -> Iterator[Part]:
    """What goes out of a scan, by shard. Raises ExpressionError."""
    for way in scan.exits:
        yield from deliver(way, leave(way, rows, failure or of_table(scan)), shards)


def of_table(scan: GraphScan) -> OnFailure:
    """Nothing more than a message with the table's name."""
    return OnFailure(scan.scan.source.table)


def pieces(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, those for the same shard and level together, in pieces of the size of a block."""
    together: dict[tuple[int, int], list[Changes]] = defaultdict(list)
    for shard, level, changes in parts:
        if len(changes):
            together[shard, level].append(changes)
    for (shard, level), several in together.items():
        for piece in cut(Changes.concat(several)):
            yield shard, level, piece


def shard_without_key(shards: int) -> int:
    """The shard of the empty key."""
    return int(hash64(binary([b""]))[0] % shards)
