"""Every size at which the code changes its behavior, so that a test can set all of them to a few rows or bytes.

A size is a module constant. The code reads the constant where it needs it and never copies it. A test can therefore set
one with `monkeypatch.setattr`, or all with `sized`. `tests/unit/test_sizes.py` finds constants that are missing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PIECES = {
    "rowkind.service.execute.expand._AT_ONCE": 1,
    "rowkind.service.execute.grouping_sets._AT_ONCE": 1,
    "rowkind.service.execute.grouping_sets._SAMPLE": 1,
    "rowkind.service.execute.blocks.BLOCK_BYTES": 1,
    "rowkind.service.spark.store.PART_BYTES": 1,
    "rowkind.service.spark.store._SMALL": 1,
    "rowkind.service.kafka.fetch._MOST_ROWS": 1,
    "rowkind.service.kafka.fetch._CHUNK_BYTES": 1,
    "rowkind.service.kafka.received._PIECE_ROWS": 1,
    "rowkind.service.kafka.received._PIECE_BYTES": 1,
    "rowkind.operators.join.rows.PAIRS_AT_ONCE": 1,
    "rowkind.operators.columns.hashing._CHUNK": 1,
    "rowkind.operators.columns.sorting._MANY": 0,
    "rowkind.operators.columns.exact_doubles.ROUNDS": 1,
    "rowkind.avro.walk._FEW": 1,
}
"""Rows or bytes processed at a time: the name of the constant and its smallest valid value."""

RELEASES = {
    "rowkind.service.plan.passes.delay_until_final.AT_ONCE": 1,
    "rowkind.operators.normalize.expiry._AT_ONCE": 1,
    "rowkind.operators.aggregate.timer_queue._AT_ONCE": 1,
    "rowkind.operators.match.recognize._AT_ONCE": 1,
}
"""Rows that one batch releases or evicts; the others wait for the next batch."""

STATE = {
    "rowkind.operators.rank.rank.MARGIN": 0,
    "rowkind.operators.arrangement.prefix_scan.MANY": 0,
    "rowkind.operators.temporal_join.nearest._FEW": 1,
    "rowkind.operators.aggregate.arranged_values._FIRST_STEP": 1,
    "rowkind.operators.aggregate.arranged_values._GROWTH": 2,
    "rowkind.operators.match.search.NEAR": 0,
    "rowkind.operators.match.search._FEWEST": 1,
    "rowkind.operators.match.search._MOST": 1,
    "rowkind.operators.match.search._STARTS": 1,
    "rowkind.operators.arrangement.segment.SEGMENT_ROWS": 1,
    "rowkind.operators.arrangement.segment.SEGMENT_BYTES": 1,
    "rowkind.operators.arrangement.compaction.FACTOR": 2,
    "rowkind.operators.arrangement.compaction.FUEL": 0,
    "rowkind.operators.arrangement.compaction.SMALL_RUN": 1,
    "rowkind.operators.arrangement.compaction.MOST_GARBAGE": 0,
    "rowkind.operators.arrangement.compaction.MOST_IN_VAIN": 0,
}
"""How much state is read at a time, and how state is split and merged."""

SHARES = (
    "rowkind.operators.rank.local_top_k.WORTH",
    "rowkind.operators.aggregate.partial.WORTH",
    "rowkind.service.execute.grouping_sets._WORTH",
)
"""The share of rows up to which an optional step is worth its cost."""

_ALWAYS = 1e9


@contextmanager
def sized(size: int | None, *, releases: bool = True) -> Iterator[None]:
    """Set all sizes to this value; None leaves them.

    With an odd value optional steps always run, with an even value never. `releases`: also set how many rows a batch
    releases.
    """
    if size is None:
        yield
        return
    counts = PIECES | STATE | (RELEASES if releases else {})
    with pytest.MonkeyPatch.context() as patch:
        for name, least in counts.items():
            patch.setattr(name, max(least, size))
        for name in SHARES:
            patch.setattr(name, _ALWAYS if size % 2 else 0.0)
        yield
