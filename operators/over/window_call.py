"""Calls of window functions, and their input: rows with their frames, ordered by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.columns.changes import Indices, Int64s, Mask
from rowkind.operators.columns.grouping import to_mask
from rowkind.operators.columns.packed_columns import Column
from rowkind.operators.over.frames import Stretches
from rowkind.operators.over.framing import Frame, OverFunction

CallArguments = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Seeds:
    """The first rows of stretches that begin after their partition's start, and the columns that these rows carry."""

    rows: Indices
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Given:
    """A call's input: the rows, the positions at which each frame begins and stops, the arguments, and the seeds."""

    rows: Stretches
    first: Indices
    stop: Indices
    arguments: CallArguments
    seeds: Seeds

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def so_far(self) -> tuple[Indices, Indices]:
        """For each row, the range from the beginning of its stretch up to and including the row."""
        return self.rows.begin, np.arange(1, len(self) + 1)

    def counted(self, call: AccumulatorCall) -> tuple[pa.Array | None, Mask]:
        """Return an aggregate's argument, and a mask of the rows that the aggregate counts."""
        counted = np.ones(len(self), np.bool_)
        if call.filter is not None:
            counted = to_mask(self.arguments[call.filter].fill_null(fill_value=False))
        return (None if call.argument is None else self.arguments[call.argument]), counted


@dataclass(frozen=True, slots=True)
class OverCall:
    """One call of a window function: an aggregate as an `AccumulatorCall`, or another function and its argument's name.

    `nth` is, for FIRST_VALUE and NTH_VALUE, the position in the frame of the row whose value is returned; for LAG and
    LEAD, the distance in rows; for NTILE, the number of tiles. `default` is the name of the argument that is returned
    if that row does not exist; None to return NULL. `skips` says whether rows whose value is NULL are skipped (IGNORE
    NULLS).
    """

    function: OverFunction
    frame: Frame
    aggregate: AccumulatorCall | None = None
    argument: str | None = None
    nth: int = 1
    default: str | None = None
    skips: bool = False

    @property
    def running(self) -> bool:
        """Whether the result depends on all rows from the beginning of the partition."""
        return self.frame.start is None and (self.function != "last_value" or self.skips)

    @property
    def looks_back(self) -> bool:
        """Whether the frame ends before the row, so that the previous row's carried state covers too many rows."""
        return self.frame.end is not None and self.frame.end < 0

    @property
    def whole(self) -> bool:
        """Whether the result depends on all rows to the end of the partition."""
        return self.frame.end is None


class Computed(Protocol):
    """The implementation of a call."""

    @property
    def kinds(self) -> str:
        """The kinds of the columns that each row carries, one letter per column, as in `packed_columns.unpack`."""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """Return each row's result, and the carried columns."""


def totals_of(values: Int64s) -> Int64s:
    """Return, for each row, the sum of the values before it, followed by the total."""
    return np.concatenate([np.zeros((1, *values.shape[1:]), np.int64), np.cumsum(values, axis=0)])


def replaced(values: pa.Array, rows: Indices, others: pa.Array) -> pa.Array:
    """Return the values, with those at `rows` replaced by `others`."""
    if not len(rows):
        return values
    at = np.arange(len(values))
    at[rows] = len(values) + np.arange(len(rows))
    return pa.concat_arrays([values, others.cast(values.type)]).take(pa.array(at))
