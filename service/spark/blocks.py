"""How an operator's output becomes blocks, and the counters that ride along with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from operators.changes import SYMBOLS, Changes, Counters, Int8s, RowKind
from operators.operator import StateSize

BLOCK_BYTES = 4 << 20
"""About how large a block may get before it is cut."""


def cut(changes: Changes, limit: int = BLOCK_BYTES) -> Iterator[Changes]:
    """The changes in slices of about `limit` bytes each; none if there are no changes."""
    size = changes.key.nbytes + changes.sub.nbytes + changes.payload.nbytes + 18 * len(changes)
    pieces = min(len(changes), -(-size // limit))
    for piece in range(pieces):
        start, end = (len(changes) * bound // pieces for bound in (piece, piece + 1))
        yield changes if pieces == 1 else _slice(changes, start, end)


def _slice(changes: Changes, start: int, end: int) -> Changes:
    return Changes(
        changes.side[start:end],
        changes.kind[start:end],
        changes.hash[start:end],
        changes.key.slice(start, end - start),
        changes.sub.slice(start, end - start),
        changes.seq[start:end],
        changes.payload.slice(start, end - start),
    )


def rows_by_kind(kind: Int8s) -> dict[str, int]:
    """How many changes of each row kind there are, by its symbol, dead letters left out."""
    counts = np.bincount(kind[kind != RowKind.DEAD_LETTER], minlength=RowKind.DEAD_LETTER)
    return {SYMBOLS[ordinal]: int(count) for ordinal, count in enumerate(counts) if count}


class Tally:
    """The counters of one operator in one batch, together with those that came with its blocks."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._samples: dict[str, float] = {}

    @property
    def counters(self) -> Counters:
        """All samples by name."""
        return self._samples

    def merge(self, counters: Mapping[str, float]) -> None:
        """Take over what came with a block: counters add up, gauges replace."""
        for name, value in counters.items():
            if name.partition("{")[0].endswith("_total"):
                self._samples[name] = self._samples.get(name, 0) + value
            else:
                self._samples[name] = value

    def _add(self, name: str, value: float, **labels: object) -> None:
        inside = ",".join(f'{label}="{text}"' for label, text in {"operator": self._node, **labels}.items())
        self.merge({f"{name}{{{inside}}}": value})

    def add_rows(self, direction: str, counts: Mapping[str, int]) -> None:
        """Count changes that came `in` or went `out`, by row kind."""
        for kind, count in counts.items():
            self._add(f"rowkind_operator_rows_{direction}_total", count, kind=kind)

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Count the time spent in a stage of the operator: `state`, `operator` or `calc`."""
        self._add("rowkind_operator_seconds_total", seconds, stage=stage)

    def add_unmatched(self, count: int) -> None:
        """Count retractions that found no row."""
        self._add("rowkind_unmatched_retractions_total", count)

    def set_state(self, shard: int, size: StateSize) -> None:
        """Say how much a shard keeps."""
        self._add("rowkind_state_rows", size.rows, shard=shard)
        self._add("rowkind_state_bytes", size.bytes, shard=shard)
        self._add("rowkind_state_runs", size.runs, shard=shard)
