"""The aggregate operator, case by case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import PARTIAL, add_up, one_of_each_group, partial
from rowkind.operators.aggregate.spec import AggregateSpec, accumulator
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.operator import Output

BIGINT, DOUBLE = pa.int64(), pa.float64()
COUNT = AccumulatorCall("count", BIGINT)
Row = tuple[Any, Any]


class Running:
    """Aggregate calls over rows (key, value), batch by batch; payloads are positions in a list."""

    def __init__(
        self, *calls: AccumulatorCall, retracts: bool = True, is_global: bool = False, ttl_ms: int | None = None
    ) -> None:
        self.rows: list[Row] = []
        self.results: list[tuple[Any, ...]] = []
        self.type = next((call.argument_type for call in calls if call.argument_type is not None), BIGINT)
        group = self._nothing if is_global else self._group
        spec = AggregateSpec(calls, self._arguments, group, self._result, retracts, is_global, ttl_ms)
        self.aggregate = Aggregate(spec)
        self.stores = {name: MemoryStore() for name in self.aggregate.arrangements}
        self.seq = 0
        self.output: Output | None = None

    def changes(self, *steps: tuple[str, Any, Any]) -> Changes:
        """Return changes from (symbol, key, value) steps; payloads are the positions of the rows."""
        first = len(self.rows)
        self.rows += [(key, value) for _, key, value in steps]
        is_global = self.aggregate.spec.is_global
        keys = binary(b"" if is_global else b"%s" % str(key).encode() for _, key, _ in steps)
        kinds = [RowKind.INSERT if symbol == "+" else RowKind.DELETE for symbol, _, _ in steps]
        count = len(steps)
        self.seq += count
        return Changes(
            np.zeros(count, np.int8),
            np.array(kinds, np.int8),
            hash64(keys),
            keys,
            binary([b""] * count),
            np.arange(self.seq - count, self.seq),
            binary(b"%d" % number for number in range(first, first + count)),
        )

    def batch(self, *steps: tuple[str, Any, Any], now: int = 0) -> list[tuple[Any, ...]]:
        """Process these changes as one batch; return what is emitted as symbol, key and results, sorted."""
        return self.process(Batch(self.changes(*steps)), now)

    def process(self, batch: Batch, now: int = 0) -> list[tuple[Any, ...]]:
        """Process this batch; return what is emitted as symbol, key and results, sorted."""
        self.output = self.aggregate.process(batch, self.stores, now)
        rows = self.output.rows
        symbols = ["+" if kind == RowKind.INSERT else "-" for kind in rows.kind]
        shown = []
        for symbol, payload in zip(symbols, rows.payload.to_pylist(), strict=True):
            key, _, results = payload.decode().partition("|")
            shown.append((symbol, *([key] if key else []), *eval(results)))
        return sorted(shown, key=repr)

    @property
    def empty(self) -> bool:
        """Whether the state is empty."""
        return not any(list(store) for store in self.stores.values())

    def _taken(self, payloads: pa.BinaryArray) -> list[Row]:
        return [self.rows[int(payload)] for payload in payloads.to_pylist()]

    def _arguments(self, payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
        values = [value for _, value in self._taken(payloads)]
        given = {"value": pa.array(values, self.type)}
        if self.type == BIGINT:
            given["positive"] = pa.array([None if value is None else value > 0 for value in values], pa.bool_())
        return given

    def _group(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        return binary(str(key).encode() for key, _ in self._taken(payloads))

    def _nothing(self, payloads: pa.BinaryArray) -> pa.BinaryArray:
        return binary([b""] * len(payloads))

    def _result(self, columns: Sequence[pa.Array]) -> pa.BinaryArray:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return binary(b"|" + repr(row).replace("nan", "'nan'").replace("inf", "'inf'").encode() for row in rows)


def test_a_group_comes_with_its_first_row_changes_with_its_rows_and_goes_with_its_last() -> None:
    """A batch emits one change per group at most: a first result, an update, or the removal of the last result."""
    count = Running(COUNT)
    assert count.batch(("+", "a", 1), ("+", "b", 1)) == [("+", "a", 1), ("+", "b", 1)]
    assert count.batch(("+", "a", 1)) == [("+", "a", 2), ("-", "a", 1)]
    assert count.batch(("-", "a", 1), ("-", "a", 1), ("-", "b", 1)) == [("-", "a", 2), ("-", "b", 1)]
    assert count.empty


def test_a_batch_that_changes_no_result_puts_nothing_out() -> None:
    """If a group's result stays equal, nothing is emitted."""
    total = Running(AccumulatorCall("sum", BIGINT, "value", BIGINT))
    total.batch(("+", "a", 5))
    assert total.batch(("-", "a", 5), ("+", "a", 2), ("+", "a", 3)) == []
    assert total.batch(("+", "a", None)) == []


def test_the_sum_of_nulls_is_null_and_their_count_is_zero() -> None:
    """A group whose values are all NULL has a NULL sum and a count of zero."""
    both = Running(
        COUNT, AccumulatorCall("count", BIGINT, "value", BIGINT), AccumulatorCall("sum", BIGINT, "value", BIGINT)
    )
    assert both.batch(("+", "a", None)) == [("+", "a", 1, 0, None)]
    assert both.batch(("+", "a", 0)) == [("+", "a", 2, 1, 0), ("-", "a", 1, 0, None)]


def test_a_global_aggregate_is_there_from_the_first_batch_on_and_stays() -> None:
    """A global aggregate emits its row with the first batch, even an empty one, and never removes it."""
    count = Running(COUNT, is_global=True)
    assert count.batch() == [("+", 0)]
    assert count.batch() == []
    assert count.batch(("+", "a", 1), ("+", "b", 1)) == [("+", 2), ("-", 0)]
    assert count.batch(("-", "a", 1), ("-", "b", 1)) == [("+", 0), ("-", 2)]


def test_doubles_come_back_to_what_they_were() -> None:
    """Retracting a huge double restores the exact sum of the small ones, rounded once."""
    total = Running(AccumulatorCall("sum", DOUBLE, "value", DOUBLE))
    assert total.batch(("+", "a", 0.1), ("+", "a", 0.2)) == [("+", "a", math.fsum([0.1, 0.2]))]
    assert total.batch(("+", "a", 1e300)) == [("+", "a", 1e300), ("-", "a", math.fsum([0.1, 0.2]))]
    assert total.batch(("-", "a", 1e300), ("-", "a", 0.2)) == [("+", "a", 0.1), ("-", "a", 1e300)]


def test_values_that_are_no_numbers_come_and_go_too() -> None:
    """Infinities of both signs give NaN; once they are retracted, the sum is finite again."""
    total = Running(AccumulatorCall("sum", DOUBLE, "value", DOUBLE))
    total.batch(("+", "a", 1.5))
    assert total.batch(("+", "a", math.inf)) == [("+", "a", "inf"), ("-", "a", 1.5)]
    assert total.batch(("+", "a", -math.inf)) == [("+", "a", "nan"), ("-", "a", "inf")]
    assert total.batch(("-", "a", -math.inf), ("-", "a", math.inf)) == [("+", "a", 1.5), ("-", "a", "nan")]
    assert total.batch(("+", "a", math.nan)) == [("+", "a", "nan"), ("-", "a", 1.5)]


def test_a_sum_that_does_not_fit_is_null_until_it_fits_again() -> None:
    """A sum that overflows is NULL, and has a value again once it fits, because the state is exact."""
    total = Running(AccumulatorCall("sum", BIGINT, "value", BIGINT))
    most = (1 << 63) - 1
    total.batch(("+", "a", most))
    assert total.batch(("+", "a", 1)) == [("+", "a", None), ("-", "a", most)]
    assert total.batch(("-", "a", most)) == [("+", "a", 1), ("-", "a", None)]


def test_the_mean_of_decimals_is_rounded_half_up() -> None:
    """The mean of decimals is rounded half up as in Spark, with four more digits than the argument."""
    type_ = pa.decimal128(10, 2)
    call = accumulator(AccumulatorCall("avg", pa.decimal128(14, 6), "value", type_))
    values = [Decimal("0.01"), Decimal("0.01"), Decimal("0.00")]
    for amounts, expected in ((values, "0.006667"), ([-value for value in values], "-0.006667")):
        part = call.lift(pa.array(amounts, type_), np.ones(3, np.bool_))
        total = call.total([(part, np.zeros(3, np.int64), np.ones(3, np.int64))], 1)
        assert call.finish(total).to_pylist() == [Decimal(expected)]


def test_a_mean_that_does_not_fit_is_null() -> None:
    """A mean that does not fit its type is NULL; only unmatched retractions can lead to one."""
    type_ = pa.decimal128(3, 2)
    call = accumulator(AccumulatorCall("avg", pa.decimal128(7, 6), "value", type_))
    part = call.lift(pa.array([Decimal("9.99")] * 3, type_), np.ones(3, np.bool_))
    part = np.array([1, 0, 0]), part[1]
    total = call.total([(part, np.zeros(3, np.int64), np.ones(3, np.int64))], 1)
    assert call.finish(total).to_pylist() == [None]


def test_the_minimum_goes_to_the_next_value_when_it_is_retracted() -> None:
    """When the last row with the minimum is retracted, the next value is the minimum; likewise for the maximum."""
    calls = [AccumulatorCall(name, BIGINT, "value", BIGINT) for name in ("min", "max")]
    extremes = Running(*calls)  # type: ignore[arg-type]
    extremes.batch(*(("+", "a", value) for value in (3, 3, 1000, 10**6, 10**12, 10**12 + 1)))
    assert extremes.batch(("-", "a", 3)) == []
    assert extremes.batch(("-", "a", 3)) == [("+", "a", 1000, 10**12 + 1), ("-", "a", 3, 10**12 + 1)]
    gone = ("-", "a", 1000), ("-", "a", 10**12 + 1)
    assert extremes.batch(*gone) == [("+", "a", 10**6, 10**12), ("-", "a", 1000, 10**12 + 1)]


def test_an_extreme_that_is_replaced_by_a_better_one_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an update replaces the maximum with a greater value, the values in the state are not searched."""
    highest = Running(AccumulatorCall("max", BIGINT, "value", BIGINT))
    highest.batch(("+", "a", 1), ("+", "a", 2))
    monkeypatch.setattr("rowkind.operators.arrangement.arrangement.Arrangement.between", None)
    assert highest.batch(("-", "a", 2), ("+", "a", 3)) == [("+", "a", 3), ("-", "a", 2)]


def test_an_append_only_input_keeps_no_values() -> None:
    """For an append-only input, MAX stores no values besides the group's row."""
    assert (
        "values" not in Running(AccumulatorCall("max", BIGINT, "value", BIGINT), retracts=False).aggregate.arrangements
    )


def test_a_value_counts_once_until_its_last_row_goes() -> None:
    """With DISTINCT, with or without FILTER, a value counts once until its last row is retracted."""
    positive = AccumulatorCall("sum", BIGINT, "value", BIGINT, "positive", distinct=True)
    distinct = Running(AccumulatorCall("count", BIGINT, "value", BIGINT, distinct=True), positive)
    assert distinct.batch(("+", "a", 4), ("+", "a", 4), ("+", "a", -4)) == [("+", "a", 2, 4)]
    assert distinct.batch(("-", "a", 4)) == []
    assert distinct.batch(("-", "a", 4)) == [("+", "a", 1, None), ("-", "a", 2, 4)]


def test_retractions_beyond_the_rows_of_a_group_are_unmatched() -> None:
    """Retractions beyond the rows of a group are reported as unmatched, the latest ones, and no count is negative."""
    total = Running(COUNT, AccumulatorCall("sum", BIGINT, "value", BIGINT))
    total.batch(("+", "a", 5))
    assert total.batch(("-", "a", 5), ("-", "a", 7), ("-", "b", 1)) == [("-", "a", 1, 5)]
    assert total.output is not None
    assert total.output.unmatched.seq.tolist() == [2, 3]
    assert total.empty


def test_the_seq_of_a_group_is_that_of_its_latest_change() -> None:
    """The seq of an emitted row is the latest of its group, and its retraction has the same seq."""
    count = Running(COUNT)
    count.batch(("+", "a", 1), ("+", "a", 2))
    count.batch(("-", "a", 1))
    assert count.output is not None
    assert count.output.rows.seq.tolist() == [1, 2]


def test_a_group_is_forgotten_as_a_whole_after_its_ttl_and_begins_anew() -> None:
    """A group expires as a whole, after its TTL without a change; its last emitted row is not retracted."""
    calls = COUNT, AccumulatorCall("min", BIGINT, "value", BIGINT)
    group = Running(*calls, ttl_ms=10)
    group.batch(("+", "a", 1), ("+", "a", 2), now=0)
    for now in (8, 16, 24, 32):
        group.batch(("+", "a", 3), now=now)
    assert group.batch(("-", "a", 1), now=40) == [("+", "a", 5, 2), ("-", "a", 6, 1)]
    assert group.batch(("+", "a", 7), now=50) == [("+", "a", 1, 7)]
    assert group.batch(("-", "a", 7), now=51) == [("-", "a", 1, 7)]


def test_a_hot_group_costs_a_task_two_rows_and_its_values() -> None:
    """A task sends one row for insertions, one for retractions, and one per value whose count changes."""
    given = Running(COUNT, AccumulatorCall("sum", BIGINT, "value", BIGINT))
    steps = [("+", "a", value % 3) for value in range(300)] + [("-", "a", value % 3) for value in range(150)]
    sent = partial(given.aggregate.spec, given.changes(*steps))
    assert sent.kind.tolist() == [RowKind.INSERT, RowKind.DELETE]
    valued = Running(AccumulatorCall("count", BIGINT, "value", BIGINT, distinct=True))
    assert len(partial(valued.aggregate.spec, valued.changes(*steps))) == 2 + 3


def test_of_the_refreshes_of_a_group_a_task_sends_one() -> None:
    """A task sends one refresh per group besides the pre-aggregated rows, and it refreshes the group's TTL."""
    given = Running(COUNT, ttl_ms=10)
    given.batch(("+", "a", 1), ("+", "b", 1))
    many = given.changes(*[("+", "ab"[number % 2], 1) for number in range(100)])
    sent = Batch(partial(given.aggregate.spec, given.changes(*[("+", "a", 1)] * 50)), one_of_each_group(many))
    assert (len(sent.changes), len(sent.refreshes)) == (1, 2)
    assert given.process(sent, now=8) == [("+", "a", 51), ("-", "a", 1)]
    assert given.batch(("+", "b", 1), now=16) == [("+", "b", 2), ("-", "b", 1)]


def test_a_task_whose_changes_are_nearly_all_of_different_groups_sends_them_as_they_are() -> None:
    """A task pre-aggregates only if groups or values are repeated often; otherwise it sends its changes unchanged."""
    count = Running(COUNT)
    rare = count.changes(*[("+", number, 1) for number in range(100)])
    assert partial(count.aggregate.spec, rare) is rare
    often = count.changes(*[("+", number % 10, 1) for number in range(100)])
    assert partial(count.aggregate.spec, often).side.tolist() == [PARTIAL] * 10
    distinct = Running(AccumulatorCall("count", BIGINT, "value", BIGINT, distinct=True))
    different = distinct.changes(*[("+", "a", number) for number in range(100)])
    assert partial(distinct.aggregate.spec, different) is different
    alike = distinct.changes(*[("+", "a", number % 10) for number in range(100)])
    assert partial(distinct.aggregate.spec, alike).side.tolist() == [PARTIAL] * 11


def test_rows_and_sums_of_one_group_meet_in_one_batch() -> None:
    """Pre-aggregated changes and plain ones of one group are combined in a batch, for old and new groups."""
    group = Running(
        COUNT, AccumulatorCall("max", BIGINT, "value", BIGINT), AccumulatorCall("sum", BIGINT, "value", BIGINT)
    )
    group.batch(("+", "a", 1))
    sums = add_up(group.aggregate.spec, group.changes(("+", "a", 5), ("-", "a", 1), ("+", "c", 7)))
    rows = group.changes(("+", "b", 3), ("+", "a", 4), ("-", "a", 5))
    assert group.process(Batch(Changes.concat([rows, sums]))) == [
        ("+", "a", 1, 4, 4),
        ("+", "b", 1, 3, 3),
        ("+", "c", 1, 7, 7),
        ("-", "a", 1, 1, 1),
    ]
