"""Division of an operator's output into blocks, and the counters that travel with the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.block import Counters
from rowkind.operators.columns.changes import Int8s
from rowkind.service.execute.metrics import MetricName, add, sample
from rowkind.service.execute.promises import Broken

BLOCK_BYTES = 4 << 20
"""The approximate size of a block, in bytes."""


def cut(batch: Batch, limit: int | None = None) -> Iterator[Batch]:
    """Yield the batch in pieces of about `limit` bytes (default `BLOCK_BYTES`). For an empty batch, yield nothing."""
    limit = BLOCK_BYTES if limit is None else limit
    pieces = min(len(batch), max(1, -(-batch.nbytes // limit)))
    for number in range(pieces):
        yield batch.piece(number, pieces)


def rows_by_kind(kind: Int8s) -> dict[str, int]:
    """Return the number of changes of each row kind, keyed by the kind's symbol."""
    return {SYMBOLS[ordinal]: int(count) for ordinal, count in enumerate(np.bincount(kind)) if count}


def edge_rows(source: str, target: str, count: int) -> Counters:
    """Return the counter of the changes that a table or an operator has sent to a consumer."""
    return {sample("rowkind_edge_rows_total", source=source, target=target): count} if count else {}


class Tally:
    """The counters of one operator in one batch."""

    def __init__(self, sink: str, node: str) -> None:
        self._labels = {"sink": sink, "operator": node}
        self._samples: dict[str, float] = {}

    @property
    def counters(self) -> Counters:
        """All samples, keyed by name."""
        return self._samples

    def add_rows_in(self, kind: Int8s) -> None:
        """Count changes that reached the operator."""
        for symbol, count in rows_by_kind(kind).items():
            self._add("rowkind_operator_rows_in_total", count, kind=symbol)

    def add_rows_out(self, emitted: Emitted) -> None:
        """Count changes and refreshes that the operator emitted."""
        for symbol, count in rows_by_kind(emitted.rows.kind).items():
            self._add("rowkind_operator_rows_out_total", count, kind=symbol)
        if refreshes := len(emitted.refreshes):
            self._add("rowkind_operator_refreshes_total", refreshes)

    def add_sent(self, target: str, count: int) -> None:
        """Count changes that were sent to a consumer."""
        add(self._samples, edge_rows(f"{self._labels['sink']}.{self._labels['operator']}", target, count))

    def add_seconds(self, stage: Literal["state", "operator", "calc"], seconds: float) -> None:
        """Add the time spent in a stage of the operator."""
        self._add("rowkind_operator_seconds_total", seconds, stage=stage)

    def add_unmatched(self, count: int) -> None:
        """Count retractions that found no row."""
        self._add("rowkind_unmatched_retractions_total", count)

    def add_broken(self, broken: Broken) -> None:
        """Count changes that violate a table's declared constraint, and record the offset of the first one."""
        add(self._samples, broken.counters)

    def add_failed(self, count: int) -> None:
        """Count rows that were dropped because an expression failed on them."""
        self._add("rowkind_failed_rows_total", count)

    def add_expired(self, count: int) -> None:
        """Count retractions of rows that had expired."""
        self._add("rowkind_expired_retractions_total", count)

    def add_late(self, count: int) -> None:
        """Count changes that were late."""
        self._add("rowkind_late_rows_total", count)

    def set_due(self, shard: int, due_ms: float) -> None:
        """Set the time at which a shard next has work to do even without input. Infinity means never."""
        self._add("rowkind_next_due_timestamp_seconds", due_ms / 1000, shard=shard)

    def add_merged(self, rows: int) -> None:
        """Count the rows of state that merges have read."""
        self._add("rowkind_state_merged_rows_total", rows)

    def set_state(self, shard: int, size: StateSize) -> None:
        """Set the size of a shard's state, and count its expired rows."""
        self._add("rowkind_state_rows", size.rows, shard=shard)
        self._add("rowkind_state_bytes", size.bytes, shard=shard)
        self._add("rowkind_state_runs", size.runs, shard=shard)
        self._add("rowkind_state_expired_rows_total", size.expired)

    def _add(self, name: MetricName, value: float, **labels: object) -> None:
        add(self._samples, {sample(name, **self._labels, **labels): value})
