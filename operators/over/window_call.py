"""One call of a window function, and what it is given: rows with their frames, in the order of their partitions."""

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
    """The first rows of the stretches that begin later than their partitions, and the columns that they carry."""

    rows: Indices
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Given:
    """The rows, where the frame of each begins and stops, the arguments of calls, and what stands for rows before."""

    rows: Stretches
    first: Indices
    stop: Indices
    arguments: CallArguments
    seeds: Seeds

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def so_far(self) -> tuple[Indices, Indices]:
        """From the beginning of the stretch up to each row."""
        return self.rows.begin, np.arange(1, len(self) + 1)

    def counted(self, call: AccumulatorCall) -> tuple[pa.Array | None, Mask]:
        """The values of an aggregate, and which rows count."""
        counted = np.ones(len(self), np.bool_)
        if call.filter is not None:
            counted = to_mask(self.arguments[call.filter].fill_null(fill_value=False))
        return (None if call.argument is None else self.arguments[call.argument]), counted


@dataclass(frozen=True, slots=True)
class OverCall:
    """One call: an aggregate as an `AccumulatorCall`, or any other function with the name of its argument.

    `nth` is the number of the row in the frame, or how many rows away it is; `default` what is given where there is no
    such row: the name of an argument, None for NULL. `skips`: rows without a value are passed over (IGNORE NULLS).
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
        """Whether it depends on all rows from the beginning of the partition on."""
        return self.frame.start is None and (self.function != "last_value" or self.skips)

    @property
    def looks_back(self) -> bool:
        """Whether its frame ends before the row, so that what the row before carries is too much."""
        return self.frame.end is not None and self.frame.end < 0

    @property
    def whole(self) -> bool:
        """Whether it depends on all rows up to the end of the partition."""
        return self.frame.end is None


class Computed(Protocol):
    """What computes one call; `kinds` are the columns that each row carries, as for `packed_columns.unpack`."""

    @property
    def kinds(self) -> str:
        """A letter per column."""

    def over(self, given: Given) -> tuple[pa.Array, list[Column]]:
        """The result of each row, and what it carries."""


def totals_of(values: Int64s) -> Int64s:
    """The sums before each row, and of all."""
    return np.concatenate([np.zeros((1, *values.shape[1:]), np.int64), np.cumsum(values, axis=0)])


def replaced(values: pa.Array, rows: Indices, others: pa.Array) -> pa.Array:
    """The values with others at some rows."""
    if not len(rows):
        return values
    at = np.arange(len(values))
    at[rows] = len(values) + np.arange(len(rows))
    return pa.concat_arrays([values, others.cast(values.type)]).take(pa.array(at))
