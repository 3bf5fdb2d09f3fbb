"""Functions over all values of a group: COLLECT_LIST, COLLECT_SET, LISTAGG, the percentiles and MODE.

Values arrive as packed rows: the value, followed by the ORDER BY columns. They are sorted by the ORDER BY columns, and
then by value in ascending order, or by the value's bytes if the type has no order. So a result depends only on the
values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro import codec
from rowkind.avro.codec import Decoded
from rowkind.avro.order import comparable, join_bytes
from rowkind.avro.schema import Record
from rowkind.operators.columns.changes import Indices, Int64s
from rowkind.operators.columns.exact_numbers import Doubles
from rowkind.operators.columns.grouping import to_mask
from rowkind.service.physical.aggregation import PhysicalAggregateCall


@dataclass(frozen=True)
class Ordered:
    """The sorted values of all groups, group by group. Each value comes with its number of occurrences."""

    values: pa.Array
    group: Indices
    times: Int64s
    count: int

    @property
    def rows(self) -> Int64s:
        """The number of values in each group, including repeated ones."""
        rows = np.zeros(self.count, np.int64)
        np.add.at(rows, self.group, self.times)
        return rows


@dataclass(frozen=True)
class Gathering:
    """Computes a call over the values of each group. The values are packed rows of `record`."""

    record: Record
    call: PhysicalAggregateCall

    def __call__(self, packed: pa.BinaryArray, group: Indices, times: Int64s, count: int) -> pa.Array:
        """Return each group's result, given each value's group and number of occurrences. NULLs are ignored."""
        rows = codec.read(self.record, packed)
        value = rows.column(self.record.names[0])
        there = np.flatnonzero(to_mask(value.is_valid()))
        order = there[np.lexsort((self._ranks(rows, packed)[there], group[there]))]
        if self.call.distinct or self.call.function == "collect_set":
            times = np.minimum(times, 1)
        ordered = Ordered(value.take(pa.array(order)), group[order], times[order], count)
        match self.call.function:
            case "listagg":
                return self._joined(ordered)
            case "collect_list" | "collect_set":
                offsets, values = _lists(ordered)
                return pa.ListArray.from_arrays(pa.array(offsets), values).cast(self.call.type.arrow)
            case "mode":
                return _mode(ordered)
        return self._percentiles(ordered)

    def _ranks(self, rows: Decoded, packed: pa.BinaryArray) -> Int64s:
        """Return a rank number for each value. The numbers sort in the same way as the values."""
        keys = [
            comparable(rows.column(column), descending=each.descending, nulls_first=each.nulls_first)
            for column, each in zip(self.call.ordered_by, self.call.order, strict=True)
        ]
        field = self.record.fields[0]
        if field.name not in self.call.ordered_by:
            keys.append(comparable(rows.column(field.name)) if field.type.orderable else packed)
        ranks: Int64s = pc.rank(join_bytes(keys), tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
        return ranks

    def _joined(self, ordered: Ordered) -> pa.Array:
        """Return each group's texts, joined with the separator, or NULL for a group without texts."""
        offsets, values = _lists(ordered)
        lists = pa.ListArray.from_arrays(pa.array(offsets), values.cast(pa.string()))
        joined = pc.binary_join(lists, self.call.constants[0])
        return pc.if_else(pa.array(np.diff(offsets) > 0), joined, pa.scalar(None, pa.string()))

    def _percentiles(self, ordered: Ordered) -> pa.Array:
        between = self.call.function == "percentile_cont"
        found = [(_between if between else _first_beyond)(ordered, float(each)) for each in self.call.constants]
        wanted, several = self.call.type.arrow, pa.types.is_list(self.call.type.arrow)
        if not several:
            return found[0].cast(wanted, safe=False)
        # A group's list contains one number from each array in `found`.
        size = len(found)
        at = np.arange(ordered.count * size).reshape(size, ordered.count).T.ravel()
        values = pa.concat_arrays([each.cast(wanted.value_type, safe=False) for each in found]).take(pa.array(at))
        there = np.flatnonzero(ordered.rows)
        lists = pa.ListArray.from_arrays(pa.array(np.arange(ordered.count + 1, dtype=np.int32) * size), values)
        mask = np.ones(ordered.count, np.bool_)
        mask[there] = False
        return lists.take(pa.array(np.arange(ordered.count), mask=mask)).cast(wanted)


def _lists(ordered: Ordered) -> tuple[Indices, pa.Array]:
    """Return the offset of each group's values, and the values. A value that occurs n times is repeated n times."""
    offsets = np.concatenate(([0], np.cumsum(ordered.rows)))
    assert offsets[-1] < 1 << 31, "the groups that one batch touches have more values than one Arrow array can hold"
    each = np.repeat(np.arange(len(ordered.times)), ordered.times)
    return offsets.astype(np.int32), ordered.values.take(pa.array(each))


def _mode(ordered: Ordered) -> pa.Array:
    """Return each group's most frequent value. If several values are equally frequent, return the first in order."""
    order = np.lexsort((-ordered.times, ordered.group))
    group = ordered.group[order]
    first = np.flatnonzero(np.concatenate((np.ones(min(1, len(group)), np.bool_), group[1:] != group[:-1])))
    winner = np.full(ordered.count, -1)
    winner[group[first]] = order[first]
    return ordered.values.take(pa.array(winner, mask=winner < 0))


def _at(ordered: Ordered, number: Int64s) -> tuple[Indices, Int64s]:
    """Return the index of each group's value at position `number`, counted from 0, and the groups with values."""
    rows = ordered.rows
    there = np.flatnonzero(rows)
    begins = np.cumsum(rows) - rows
    return np.searchsorted(np.cumsum(ordered.times), (begins + number)[there], side="right"), there


def _first_beyond(ordered: Ordered, fraction: float) -> pa.Array:
    """Return each group's percentile: the first value, in order, that covers at least this fraction of the rows."""
    found, there = _at(ordered, np.maximum(np.ceil(ordered.rows * fraction).astype(np.int64) - 1, 0))
    winner = np.full(ordered.count, -1)
    winner[there] = found
    return ordered.values.take(pa.array(winner, mask=winner < 0))


def _between(ordered: Ordered, fraction: float) -> pa.Array:
    """Return each group's interpolated percentile, at this fraction of the way from the first to the last row."""
    position = np.maximum(ordered.rows - 1, 0) * fraction
    low, there = _at(ordered, np.floor(position).astype(np.int64))
    high, _ = _at(ordered, np.ceil(position).astype(np.int64))
    values: Doubles = ordered.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    below, above, exactly = values[low], values[high], position[there]
    with np.errstate(invalid="ignore"):
        line = (np.ceil(exactly) - exactly) * below + (exactly - np.floor(exactly)) * above
    result = np.zeros(ordered.count)
    result[there] = np.where(below == above, below, line)
    result[there] = np.where(low == high, below, result[there])
    none = np.ones(ordered.count, np.bool_)
    none[there] = False
    return pa.array(result, pa.float64(), mask=none)
