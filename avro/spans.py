"""Fields of packed rows as spans of bytes, ready to be copied into other rows.

Spans that do not overlap within a row share one Arrow array over the source's buffer. A row that is built from several
of them therefore costs one gather and no copy of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from rowkind.avro.buffers import Bytes, Ints, binary_from


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from `starts` to `ends` in every row.

    `low` and `high` describe the same bounds for all rows at once. Spans with `low < high <= other.low` never overlap;
    if `high == other.low`, the other span begins where this span ends.
    """

    starts: Ints
    ends: Ints
    low: int
    high: int


Other = TypeVar("Other")

Piece = tuple[pa.BinaryArray, int, int]
"""An array, the index of the first row's element, and the step to the next row's element."""


def merge_adjacent(layout: Sequence[Span | Other]) -> list[Span | Other]:
    """Merge neighbouring spans of a layout that are also adjacent in their row."""
    merged: list[Span | Other] = []
    for part in layout:
        last = merged[-1] if merged else None
        if isinstance(part, Span) and isinstance(last, Span) and last.high == part.low:
            merged[-1] = Span(last.starts, part.ends, last.low, part.high)
        else:
            merged.append(part)
    return merged


def pool_spans(spans: Sequence[Span], data: Bytes, rows: Ints | None) -> list[Piece]:
    """Return a piece over `data` for each span, for the given rows or, if None, for all rows."""
    pools: list[list[int]] = []
    pieces: dict[int, Piece] = {}
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].low, spans[i].high)):
        for pool in pools:
            if spans[pool[-1]].high <= spans[i].low:
                pool.append(i)
                break
        else:
            pools.append([i])
    for pool in pools:
        step = 2 * len(pool)
        count = len(spans[pool[0]].starts) if rows is None else len(rows)
        offsets = np.empty(count * step, np.int32)
        for place, i in enumerate(pool):
            offsets[2 * place :: step] = spans[i].starts if rows is None else spans[i].starts[rows]
            offsets[2 * place + 1 :: step] = spans[i].ends if rows is None else spans[i].ends[rows]
        array = binary_from(offsets if count else np.zeros(1, np.int32), data)
        pieces |= {i: (array, 2 * place, step) for place, i in enumerate(pool)}
    return [pieces[i] for i in range(len(spans))]
