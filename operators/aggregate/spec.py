"""What an aggregate computes, and what it therefore keeps of rows."""

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
    """GROUP BY some columns, with these calls.

    The plan provides
    - as the key of every change the comparable bytes of the group columns, *never null* (NULLs are equal here), its
      `hash64` as hash and shard, no sub-key; for a global aggregate the empty key and one shard;
    - as input an exact changelog: operators put that out, and `Normalize` makes it of a source where rows are replaced
      by bare +U or retracted without being there. Order does not matter.
    - `arguments`: the columns that calls name as arguments or filters, for these payloads; not asked where none does.
      Of MIN_BY and MAX_BY that is comparable bytes of the order that end in the value, NULL where the row does not
      count; of FIRST and LAST bytes of the value and of what tells rows apart; of what is gathered all of a value.
    - `group`: the group columns of these payloads, packed. Equal keys must give equal bytes, so -0.0 and NaN are to be
      written in one way. Empty bytes for a global aggregate.
    - `result`: one column per call in, their packed values out; all but COUNT are nullable, whatever the argument is. A
      row that is emitted is the group's bytes and behind them these, a payload of the schema that has both; HAVING and
      the order of columns are the calc's.
    - `retracts`: whether the input may hold retractions. Extremes then keep all values of a group.
    - `ttl_ms`: how long a group lives after its last change; None for a global aggregate, which has nothing to expire.
    - `until`: when groups may be let go of, by their group columns, packed; None where they have no time of their own.
    - `ends`: the same, by their rows as they are emitted, where it is these that tell.
    - `refreshes`: whether somebody further down has a TTL.
    - `fallible`: the numbers of calls of SUM and AVG whose results fail a row where they do not fit their types.
    - `is_global`: there is no GROUP BY. The row is then emitted in the first batch, with or without changes: an empty
      block sent to the shard of the empty key is enough, and the plan has the scan send one with its first batch.

    All are picklable. No calls at all make SELECT DISTINCT, which `result` is not asked for.
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
        assert not (self.ends and (self.until or self.ttl_ms)), "groups are let go of for one reason"

    @property
    def numbered(self) -> tuple[np.ufunc, int]:
        """By which of its rows' arrival numbers a group is numbered, and what stands where there is none yet.

        It is the latest. A row of SELECT DISTINCT has the first: where rows only come, it never changes.
        """
        numbers = np.iinfo(np.int64)
        return (np.maximum, numbers.min) if self.calls else (np.minimum, numbers.max)

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """How many rows a group has, and what each call keeps."""
        return (Counts(ROWS), *map(accumulator, self.calls))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The arguments whose values are kept, each once."""
        return tuple(dict.fromkeys(stream for call in self.calls if (stream := self.stream(call)) is not None))

    def stream(self, call: AccumulatorCall) -> Stream | None:
        """Where the call gets what it counts from, if not from the rows themselves."""
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
        """The views of functions that are not ours, call by call."""
        return tuple(view for call in self.calls if call.custom is not None for view in call.custom.views)

    @property
    def keeps_times(self) -> bool:
        """Whether there is something that has to live as long as its group."""
        return bool(self.streams or self.views)

    @property
    def sources(self) -> tuple[int | None, ...]:
        """For each accumulator the number of its stream; None where it takes the rows themselves."""
        streams = self.streams
        found = [self.stream(call) for call in self.calls]
        return (None, *(None if stream is None else streams.index(stream) for stream in found))

    @property
    def row_kinds(self) -> str:
        """The columns of the accumulators that take the rows themselves."""
        pairs = zip(self.accumulators, self.sources, strict=True)
        return "".join(accumulator.kinds for accumulator, source in pairs if source is None)


def accumulator(call: AccumulatorCall) -> Accumulator:
    """What a call keeps."""
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
"""The rows of a group."""
