"""The specification of an aggregate, and the state that follows from it."""

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

    The plan provides
    - the key of every change: the comparable bytes of the group columns, *never null* (NULLs are equal here), with
      their `hash64` as hash and shard and without a sub-key. A global aggregate has the empty key and one shard.
    - an exact changelog as input. Operators emit one. For a source in which a bare +U replaces a row, or in which
      retractions may find no row, `Normalize` produces one. Order does not matter.
    - `arguments`: returns, for payloads, the columns that calls name as arguments or filters. It is not called if no
      call names one. For MIN_BY and MAX_BY the column has comparable bytes of the ordering value followed by the value,
      NULL if the row does not count. For FIRST and LAST it has bytes of the value and of the columns that distinguish
      rows. For functions of all values it has the whole value as bytes.
    - `group`: returns the group columns of payloads, packed. Equal keys must give equal bytes, so -0.0 and NaN must
      each have one representation. Empty bytes for a global aggregate.
    - `result`: takes one column per call and returns the packed values. All columns but those of COUNT are nullable,
      even if the argument is not. An emitted row is the group's bytes followed by these bytes: a payload under the
      schema of both. HAVING and the order of columns are left to the calc.
    - `retracts`: whether the input may have retractions. If so, extremes keep all values of a group.
    - `ttl_ms`: how long a group lives after its last change, in ms; None for a global aggregate, which never expires.
    - `until`: the time at which a group may be evicted, from its packed group columns; None if they contain no time.
    - `ends`: the time at which a group may be evicted, from its emitted rows, if the group columns do not determine it.
    - `refreshes`: whether a downstream operator has a TTL.
    - `fallible`: the numbers of the SUM and AVG calls whose row fails if the result does not fit its type.
    - `is_global`: there is no GROUP BY. The row is then emitted in the first batch, with or without changes. An empty
      block for the shard of the empty key is enough to start that batch, and the plan has the scan send one first.

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
        """How the arrival number of a group follows from those of its rows, and the initial value before any row.

        It is the latest number. For SELECT DISTINCT it is the first: if rows are only inserted, it then never changes.
        """
        numbers = np.iinfo(np.int64)
        return (np.maximum, numbers.min) if self.calls else (np.minimum, numbers.max)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The row count of a group, and the accumulator of each call."""
        return (Counts(ROWS), *map(accumulator, self.calls))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The arguments whose values are stored, each once."""
        return tuple(dict.fromkeys(stream for call in self.calls if (stream := self.stream(call)) is not None))

    def stream(self, call: AccumulatorCall) -> Stream | None:
        """Return the stream of values that the call reads; None if it reads the input rows directly."""
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
        """The views of user-defined functions, call by call."""
        return tuple(view for call in self.calls if call.custom is not None for view in call.custom.views)

    @property
    def keeps_times(self) -> bool:
        """Whether values or views are stored that must live as long as their group."""
        return bool(self.streams or self.views)

    @property
    def sources(self) -> tuple[int | None, ...]:
        """For each accumulator, the number of its stream; None if it reads the input rows directly."""
        streams = self.streams
        found = [self.stream(call) for call in self.calls]
        return (None, *(None if stream is None else streams.index(stream) for stream in found))

    @property
    def row_kinds(self) -> str:
        """The kinds of the columns of the accumulators that read the input rows directly."""
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
"""The number of rows of a group."""
