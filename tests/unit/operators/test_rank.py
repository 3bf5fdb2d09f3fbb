"""The rank operator, case by case.

Rows are written `id partition value`; with the number in the output, it is the last column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int64s, binary
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import Ranking
from tests.oracle.ranked import RankInput, identity, numbered
from tests.unit.operators.partitions import Partitions, top

IDENTIFIED = RankInput("unique key", by_seq=True)


def test_the_first_rows_of_each_partition_are_emitted() -> None:
    """The first two rows of each partition by ascending value are emitted."""
    ranks = top(2)

    assert ranks.take("+I 1 7 30", "+I 2 7 10", "+I 3 7 20", "+I 4 8 99") == ["+I 2 7 10", "+I 3 7 20", "+I 4 8 99"]


def test_a_better_row_pushes_the_last_one_out() -> None:
    """A better row is inserted, the row that leaves the range is retracted, and no other row is emitted."""
    ranks = top(2)
    ranks.take("+I 1 7 10", "+I 2 7 20")

    assert ranks.take("+I 3 7 15") == ["+I 3 7 15", "-D 2 7 20"]


def test_a_deleted_row_makes_room_for_the_next() -> None:
    """If a row in the range is deleted, the next row is emitted."""
    ranks = top(2)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30", "+I 4 7 40")

    assert ranks.take("-D 1 7 10") == ["+I 3 7 30", "-D 1 7 10"]


def test_a_delete_above_the_range_pulls_rows_through_it() -> None:
    """With BETWEEN 3 AND 4, a delete before the range retracts the first row of the range and emits a new last one."""
    ranks = top(4, first=3)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(1, 7)))

    assert ranks.take("-D 1 7 1") == ["+I 5 7 5", "-D 3 7 3"]


def test_only_the_second_row() -> None:
    """With = 2, nothing is emitted until the partition has two rows."""
    ranks = top(2, first=2)

    assert ranks.take("+I 1 7 10") == []
    assert ranks.take("+I 2 7 5") == ["+I 1 7 10"]


def test_a_move_inside_the_range_is_silent_without_the_number() -> None:
    """Without the number, rows that change places and stay in the range are not emitted."""
    ranks = top(3)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30", "+I 4 7 40")

    assert ranks.take("-U 2 7 20", "+U 2 7 5") == ["+I 2 7 5", "-D 2 7 20"]


def test_with_the_number_each_moved_row_is_an_update() -> None:
    """With the number, every row whose number changes is emitted, and the others are not."""
    ranks = top(3, numbered=numbered)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30")

    assert ranks.take("+I 4 7 15") == ["+I 2 7 20 3", "+I 4 7 15 2", "-D 2 7 20 2", "-D 3 7 30 3"]


def test_of_ties_the_earlier_arrival_is_first() -> None:
    """Of rows with equal values, the first arrivals rank first."""
    ranks = top(2)

    assert ranks.take("+I 9 7 10", "+I 1 7 10", "+I 5 7 10") == ["+I 1 7 10", "+I 9 7 10"]
    assert ranks.take("-D 9 7 10") == ["+I 5 7 10", "-D 9 7 10"]


def test_a_row_that_goes_and_comes_back_is_last_of_its_ties() -> None:
    """A row that is deleted and inserted again ranks last of its ties."""
    ranks = top(1)
    ranks.take("+I 1 7 10", "+I 2 7 10")

    assert ranks.take("-U 1 7 10", "+U 1 7 10") == ["+I 2 7 10", "-D 1 7 10"]


def test_rank_covers_all_ties() -> None:
    """RANK gives all ties the same number, and the next number skips as many rows."""
    ranks = top(4, function="rank", numbered=numbered)

    assert ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 20", "+I 4 7 30", "+I 5 7 40") == [
        "+I 1 7 10 1",
        "+I 2 7 20 2",
        "+I 3 7 20 2",
        "+I 4 7 30 4",
    ]


def test_dense_rank_counts_values() -> None:
    """DENSE_RANK <= 2 emits all rows with the two best values."""
    ranks = top(2, function="dense_rank", numbered=numbered)

    assert ranks.take("+I 1 7 10", "+I 2 7 10", "+I 3 7 20", "+I 4 7 20", "+I 5 7 30") == [
        "+I 1 7 10 1",
        "+I 2 7 10 1",
        "+I 3 7 20 2",
        "+I 4 7 20 2",
    ]
    assert ranks.take("-D 1 7 10") == ["-D 1 7 10 1"]
    assert ranks.take("-D 2 7 10") == [
        "+I 3 7 20 1",
        "+I 4 7 20 1",
        "+I 5 7 30 2",
        *_gone("2 7 10 1 3 7 20 2 4 7 20 2"),
    ]


def _gone(columns: str) -> list[str]:
    values = columns.split()
    return [f"-D {' '.join(values[at : at + 4])}" for at in range(0, len(values), 4)]


def test_equal_rows_are_ranked_severally() -> None:
    """Of three equal rows two are in the top 2, and after the retraction of one there are still two."""
    ranks = top(2)

    assert ranks.take("+I 1 7 10", "+I 1 7 10", "+I 1 7 10") == ["+I 1 7 10", "+I 1 7 10"]
    assert ranks.take("-D 1 7 10") == []
    assert ranks.take("-D 1 7 10") == ["-D 1 7 10"]


def test_rows_without_a_partition_value_are_one_partition() -> None:
    """Rows whose partition column is NULL form one partition."""
    ranks = top(1)

    assert ranks.take("+I 1 NULL 20", "+I 2 NULL 10") == ["+I 2 NULL 10"]


def test_null_values_come_first_or_last_as_the_order_key_says() -> None:
    """NULL is first in ascending and last in descending order here."""
    descending_input = RankInput("multiset", by_seq=True, descending=True)
    ascending, descending = top(1), Partitions(RankSpec(Ranking("row_number", 1, 1)), descending_input)

    assert ascending.take("+I 1 7 10", "+I 2 7 NULL") == ["+I 2 7 NULL"]
    assert descending.take("+I 1 7 10", "+I 2 7 NULL") == ["+I 1 7 10"]


def test_rows_that_agree_in_all_but_the_order_key_are_kept_apart() -> None:
    """Rows that differ only in the order key are distinct, and a retraction removes the one with its order key."""
    operator = Rank(RankSpec(Ranking("row_number", 1, 1), numbered=_with_number_only))
    store = MemoryStore()

    def take(kind: RowKind, *order_keys: bytes) -> list[tuple[int, bytes]]:
        count = len(order_keys)
        same = binary([b"same"] * count)
        changes = Changes(
            np.zeros(count, np.int8),
            np.full(count, kind, np.int8),
            np.zeros(count, np.uint64),
            same,
            binary(order_keys),
            np.arange(count),
            same,
        )
        rows = operator.process(Batch(changes), {"rows": store}, 0).rows
        return list(zip(rows.kind.tolist(), rows.payload.to_pylist(), strict=True))

    prefix = b"a long beginning that both share "
    assert take(RowKind.INSERT, prefix + b"2", prefix + b"1") == [(RowKind.INSERT, b"same 1")]
    assert take(RowKind.DELETE, prefix + b"2") == []
    assert take(RowKind.DELETE, prefix + b"2") == []
    assert take(RowKind.DELETE, prefix + b"1") == [(RowKind.DELETE, b"same 1")]
    assert list(store) == []


def _with_number_only(_: pa.BinaryArray, numbers: Sequence[Int64s]) -> pa.BinaryArray:
    return binary(b"same %d" % number for number in numbers[0].tolist())


def test_a_retraction_of_an_unknown_row_changes_nothing() -> None:
    """A retraction of an unknown row emits nothing and is reported as unmatched."""
    ranks = top(1)
    ranks.take("+I 1 7 10")

    assert ranks.take("-D 2 7 10", "-D 1 7 11") == []
    assert ranks.unmatched == 2


def test_improving_replaces_by_the_unique_key() -> None:
    """The improving strategy replaces a row by its unique key and retracts the old row as it was emitted."""
    ranks = Partitions(
        RankSpec(Ranking("row_number", 1, 2, strategy="improving"), identity=identity, by_seq=True), IDENTIFIED
    )
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30")

    assert ranks.live == 2
    assert ranks.take("+U 3 7 15") == ["+I 3 7 15", "-D 2 7 20"]
    assert ranks.take("-U 3 7 15", "+U 3 7 5") == ["+I 3 7 5", "-D 3 7 15"]
    assert ranks.unmatched == 0
    assert ranks.live == 2


def test_improving_keeps_the_ties_of_the_last_row() -> None:
    """The improving strategy keeps the ties of the last row, because an update moves a row behind its ties."""
    ranks = Partitions(
        RankSpec(Ranking("row_number", 1, 1, strategy="improving"), identity=identity, by_seq=True), IDENTIFIED
    )
    ranks.take("+I 1 7 10", "+I 2 7 10")

    assert ranks.take("+U 1 7 10") == ["+I 2 7 10", "-D 1 7 10"]


def test_a_row_that_expires_counts_no_more_and_is_not_taken_back() -> None:
    """An expired row is not retracted, and the next row is emitted with the next change of the partition."""
    ranks = top(1, ttl_ms=10)
    ranks.take("+I 1 7 10", at=0)
    ranks.take("+I 2 7 20", at=5)

    assert ranks.take("+I 3 7 30", at=10) == ["+I 2 7 20"]
    assert ranks.take("-D 1 7 10", at=10) == []
    assert ranks.unmatched == 1
    assert ranks.take("-D 2 7 20", at=14) == ["+I 3 7 30", "-D 2 7 20"]


def test_a_number_that_changed_by_expiry_is_taken_back_as_it_was_emitted() -> None:
    """A row whose number changed by an expiry is retracted with the number that was emitted."""
    ranks = top(2, ttl_ms=10, numbered=numbered)
    ranks.take("+I 1 7 10", at=0)
    ranks.take("+I 2 7 20", at=5)

    assert ranks.take("+I 3 7 30", at=10) == ["+I 2 7 20 1", "+I 3 7 30 2", "-D 2 7 20 2"]


def test_writing_a_row_again_lengthens_its_life() -> None:
    """Writing an equal row again emits nothing and refreshes its TTL."""
    ranks = top(1, ttl_ms=10)
    ranks.take("+I 1 7 10", at=0)

    assert ranks.take("-U 1 7 10", "+U 1 7 10", at=8) == []
    assert ranks.take("-D 1 7 10", at=15) == ["-D 1 7 10"]


def test_nothing_is_left_of_a_partition_whose_rows_are_gone() -> None:
    """When every row of a partition has been retracted, no blob is left."""
    ranks = top(2, numbered=numbered)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30")
    ranks.take("-D 3 7 30", "-D 2 7 20", "-D 1 7 10")

    assert list(ranks.store) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 0},
        {"first": 3, "last": 2},
        {"strategy": "improving"},
        {"strategy": "improving", "identity": identity, "function": "dense_rank"},
        {"last": 128, "ttl_ms": 1, "numbered": numbered},
    ],
)
def test_a_spec_that_cannot_be_kept_is_refused(wrong: dict[str, object]) -> None:
    """An invalid spec fails when it is created."""
    with pytest.raises(AssertionError):
        top(**({"last": 2} | wrong))  # type: ignore[arg-type]
