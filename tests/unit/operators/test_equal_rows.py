"""Equal rows without a key are counted: the state has one entry for them, and each retraction removes one row.

With a TTL, each row expires by its own age and has its own entry. ROW_NUMBER, which numbers ties by arrival, also
stores one entry per row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinSpec
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinSpec
from rowkind.operators.normalize.normalize import Normalize
from rowkind.operators.operator import Operator, Output
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import RankFunction, Ranking
from tests import changelogs
from tests.changelogs import Change, Row, Table, changed, pack
from tests.oracle.ranked import RankInput
from tests.unit.operators.test_aggregate import BIGINT, Running

MANY, BATCHES, AT_ONCE = 20_000, 20, 1_000
ROW = (1, 7, 10)
TABLE = Table(key=(1,))


class Shard:
    """An operator that processes the batches of one shard."""

    def __init__(self, operator: Operator, packed: Callable[[list[Change]], Batch]) -> None:
        self.operator, self.packed = operator, packed
        self.stores = {name: MemoryStore() for name in operator.arrangements}
        self.seq = 0
        self.output: Output | None = None

    def batch(self, kind: RowKind, row: Row, times: int, *, side: int = 0, now: int = 0) -> Mapping[Row, int]:
        """Process a change the given number of times in one batch; return the output rows with their net counts."""
        changes = [Change(side, kind, row, self.seq + number) for number in range(times)]
        self.seq += times
        self.output = self.operator.process(self.packed(changes), self.stores, now)
        return changed(self.output.rows)

    @property
    def unmatched(self) -> int:
        """The number of unmatched retractions in the last batch, including those of expired rows."""
        assert self.output is not None
        return len(self.output.unmatched) + self.output.expired

    @property
    def entries(self) -> int:
        """The number of stored entries."""
        assert self.output is not None
        return self.output.state.rows


def _joined(ttl_ms: int | None = None) -> Shard:
    side = Side("multiset", ttl_ms)
    spec = JoinSpec("left", side, side, right_pad=pack((None, None, None)))
    return Shard(Join(spec), lambda changes: changelogs.packed(changes, [TABLE] * 2))


def _semi(ttl_ms: int | None = None) -> Shard:
    side = Side("multiset", ttl_ms)
    return Shard(SemiJoin(SemiJoinSpec("semi", side, side)), lambda changes: changelogs.packed(changes, [TABLE] * 2))


def _normalized(ttl_ms: int | None = None) -> Shard:
    return Shard(Normalize(Side("multiset", ttl_ms, by_seq=True)), lambda changes: changelogs.packed(changes, [TABLE]))


def _ranked(ttl_ms: int | None = None, function: RankFunction = "rank") -> Shard:
    rank = Rank(RankSpec(Ranking(function, 1, 1), ttl_ms=ttl_ms))
    return Shard(rank, RankInput("multiset", by_seq=False).columns)


SHARDS = (_joined, _semi, _normalized, _ranked)


@pytest.mark.parametrize("new", SHARDS)
def test_equal_rows_are_one_entry(new: Callable[[], Shard]) -> None:
    """20,000 equal rows are at most 6 entries when they arrive in batches, and 1 entry in one batch."""
    shard = new()
    for _ in range(BATCHES):
        shard.batch(RowKind.INSERT, ROW, AT_ONCE)
        assert shard.entries <= 6
    at_once = new()
    at_once.batch(RowKind.INSERT, ROW, MANY)
    assert at_once.entries == 1


@pytest.mark.parametrize("new", SHARDS)
def test_equal_rows_are_taken_back_one_by_one(new: Callable[[], Shard]) -> None:
    """Each retraction removes one of the equal rows, one too many is unmatched, and at the end nothing is stored."""
    shard, sides, out = new(), range(len(new().stores)), Counter[Row]()
    for side in sides:
        out.update(shard.batch(RowKind.INSERT, ROW, 5, side=side))
    for times in (1, 3):
        for row, step in shard.batch(RowKind.DELETE, ROW, times).items():
            out[row] += step
    assert set(out.values()) <= {0, 1, 5}
    taken = shard.batch(RowKind.DELETE, ROW, 2)
    assert {row: out[row] + step for row, step in taken.items()} == dict.fromkeys(taken, 0)
    assert shard.unmatched == 1
    for side in sides[1:]:
        shard.batch(RowKind.DELETE, ROW, 6, side=side)
        assert shard.unmatched == 1
    assert all(list(store) == [] for store in shard.stores.values())


@pytest.mark.parametrize("new", SHARDS)
def test_with_a_ttl_equal_rows_stay_apart(new: Callable[[int | None], Shard]) -> None:
    """With a TTL, each of the equal rows has its own entry and expires by its own age."""
    shard = new(10)
    shard.batch(RowKind.INSERT, ROW, 3, now=0)
    shard.batch(RowKind.INSERT, ROW, 2, now=5)
    assert shard.entries == 5
    shard.batch(RowKind.DELETE, ROW, 1, now=12)
    assert shard.unmatched == 0
    shard.batch(RowKind.DELETE, ROW, 2, now=14)
    assert shard.unmatched == 1


def test_rows_numbered_by_arrival_stay_apart() -> None:
    """ROW_NUMBER stores one entry per row, because it numbers ties by arrival."""
    shard = _ranked(function="row_number")
    shard.batch(RowKind.INSERT, ROW, 5)
    assert shard.entries == 5


def test_pairs_of_counted_rows_are_as_many_as_both_counts_say() -> None:
    """Three equal rows on each side are nine pairs, and one row less on one side retracts three of them."""
    shard = _joined()
    padded, pair = (*ROW, None, None, None), (*ROW, *ROW)
    assert shard.batch(RowKind.INSERT, ROW, 3) == {padded: 3}
    assert shard.batch(RowKind.INSERT, ROW, 3, side=1) == {padded: -3, pair: 9}
    assert shard.batch(RowKind.DELETE, ROW, 1) == {pair: -3}
    assert shard.batch(RowKind.DELETE, ROW, 3, side=1) == {pair: -6, padded: 2}


def test_the_values_of_an_aggregate_are_one_entry_each() -> None:
    """MIN over a retracting input counts the rows of a value instead of storing each of them."""
    running = Running(AccumulatorCall("min", BIGINT, "value", BIGINT))
    for _ in range(BATCHES):
        running.batch(*[("+", 1, 5)] * AT_ONCE)
    assert running.output is not None
    assert running.output.state.rows <= BATCHES
    assert running.batch(*[("-", 1, 5)] * (MANY - 1)) == []
    assert running.batch(("-", 1, 5)) == [("-", "1", 5)]
    assert running.empty
