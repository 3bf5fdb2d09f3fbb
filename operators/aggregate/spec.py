"""The specification of an aggregate. It determines which state the aggregate stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import Accumulator, AccumulatorCall, Counts, Extremes, Sums
from rowkind.operators.aggregate.arranged_values import Stream
from rowkind.operators.aggregate.bits import Bits
from rowkind.operators.aggregate.function import ARRIVALS, BITS, EXTREMES, GATHERED, MOMENTS, keeps_values
from rowkind.operators.aggregate.gathered import Gathered
from rowkind.operators.aggregate.group_function import Custom
from rowkind.operators.aggregate.group_views import ViewCodec
from rowkind.operators.aggregate.moments import Moments
from rowkind.operators.aggregate.stages import FirstStage, SecondStage, StageBetween
from rowkind.operators.columns.rowtime import RowTime


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """A GROUP BY with its aggregate calls.

    The plan provides:

    - the key of every change: the comparable bytes of the group columns. The key is *never null*, because NULLs are
      equal to each other in GROUP BY. The hash is the key's `hash64` and determines the shard. There is no sub-key. A
      global aggregate has an empty key and one shard.
    - an exact changelog as input, in any order. Operators emit exact changelogs. If a source replaces rows with a +U
      without a -U, or retracts rows that may not exist, `Normalize` converts its changes to an exact changelog.
    - `arguments`: a function that takes payloads and returns the columns that calls name as arguments or filters. If no
      call names a column, the function is not called. For MIN_BY and MAX_BY, the column has the comparable bytes of the
      ordering value followed by the value, or NULL if the row is not aggregated. For FIRST and LAST, it has the bytes
      of the value and of the columns that distinguish rows. For functions of all values, it has the complete value as
      bytes.
    - `group`: a function that takes payloads and returns their packed group columns. Equal keys must have equal bytes,
      so zero and NaN must each have a single representation. For a global aggregate, the bytes are empty.
    - `result`: a function that takes one column per call and returns the packed values. All columns except those of
      COUNT are nullable, even if the argument is not. An emitted payload is the bytes of `group` followed by the bytes
      of `result`. HAVING and the order of columns are left to the calc.
    - `retracts`: whether the input may have retractions. If so, MIN, MAX and similar functions store all values of a
      group.
    - `ttl_ms`: how long a group lives after its last change, in ms. It is None for a global aggregate, which never
      expires.
    - `until`: a function that takes packed group columns and returns the time at which each group may be evicted; None
      if the group columns contain no time.
    - `ends`: like `until`, but the function takes the emitted rows of groups. It is used if the group columns do not
      determine the time.
    - `refreshes`: whether a downstream operator has a TTL.
    - `fallible`: the indices of the SUM and AVG calls whose row fails if the result does not fit its type.
    - `is_global`: whether there is no GROUP BY. If so, the row is emitted in the first batch, even if there are no
      changes. An empty block for the shard of the empty key is enough to start that batch, and the plan ensures that
      the scan sends such a block first.

    All functions must be picklable. An aggregate without calls is SELECT DISTINCT; `result` is then not called.
    """

    calls: tuple[AccumulatorCall, ...]
    arguments: Callable[[pa.BinaryArray], Mapping[str, pa.Array]]
    group: Callable[[pa.BinaryArray], pa.BinaryArray]
    result: Callable[[Sequence[pa.Array]], pa.BinaryArray]
    retracts: bool = True
    is_global: bool = False
    ttl_ms: int | None = None
    until: RowTime | None = None
    ends: RowTime | None = None
    refreshes: bool = False
    fallible: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert not (self.is_global and self.ttl_ms), "the row of a global aggregate cannot expire"
        assert not (self.ends and (self.until or self.ttl_ms)), "`ends` excludes `until` and a TTL"

    @property
    def numbered(self) -> tuple[np.ufunc, int]:
        """The function that combines the arrival numbers of a group's rows, and its initial value.

        A group has the latest arrival number of its rows. For SELECT DISTINCT, it has the earliest one, which never
        changes if rows are only inserted.
        """
        numbers = np.iinfo(np.int64)
        return (np.maximum, numbers.min) if self.calls else (np.minimum, numbers.max)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The accumulator of a group's row count, followed by the accumulator of each call."""
        return (Counts(ROWS), *map(accumulator, self.calls))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The arguments whose values are stored, without duplicates."""
        return tuple(dict.fromkeys(stream for call in self.calls if (stream := self.stream(call)) is not None))

    def stream(self, call: AccumulatorCall) -> Stream | None:
        """Return the stream of values that the call reads, or None if the call reads the input rows directly."""
        if not keeps_values(call.function, distinct=call.distinct, retracts=self.retracts and not call.grows):
            return None
        assert call.argument is not None
        assert call.argument_type is not None
        if call.function in ARRIVALS:
            return Stream(call.argument, call.filter, call.argument_type, "arrival")
        if call.function in EXTREMES:
            by_key = call.function in ("min_by", "max_by")
            return Stream(call.argument, call.filter, call.argument_type, "key" if by_key else "order")
        return Stream(call.argument, call.filter, call.argument_type, "hash")

    @property
    def views(self) -> tuple[ViewCodec, ...]:
        """The codecs of the views of all user-defined functions, in the order of the calls."""
        return tuple(view for call in self.calls if call.custom is not None for view in call.custom.views)

    @property
    def keeps_times(self) -> bool:
        """Whether groups are stored with their times, because their values or views must live as long as the group."""
        return bool(self.streams or self.views)

    @property
    def sources(self) -> tuple[int | None, ...]:
        """The number of each accumulator's stream, or None if the accumulator reads the input rows directly."""
        streams = self.streams
        found = [self.stream(call) for call in self.calls]
        return (None, *(None if stream is None else streams.index(stream) for stream in found))

    @property
    def row_kinds(self) -> str:
        """The column kinds of those accumulators that read the input rows directly."""
        pairs = zip(self.accumulators, self.sources, strict=True)
        return "".join(accumulator.kinds for accumulator, source in pairs if source is None)


def accumulator(call: AccumulatorCall) -> Accumulator:
    """Return the accumulator of a call."""
    match call.stage:
        case "first":
            return FirstStage(_whole(call))
        case "between":
            return StageBetween(_whole(call))
        case "second":
            return SecondStage(_whole(call))
    return _whole(call)


def _whole(call: AccumulatorCall) -> Accumulator:
    if call.custom is not None:
        return Custom(call.custom)
    if call.function in MOMENTS:
        return Moments(call)
    if call.function in BITS:
        return Bits(call)
    if call.function in EXTREMES:
        return Extremes(call)
    if call.function in GATHERED:
        return Gathered(call)
    return Sums(call) if call.function in ("sum", "avg") else Counts(call)


ROWS = AccumulatorCall("count", pa.int64())
"""The call that counts a group's rows."""
