"""The number of rows that a rank stores and reads."""

from __future__ import annotations

import pytest

from rowkind.operators.arrangement import compaction
from rowkind.operators.rank import rank
from rowkind.operators.rank.rank import RankSpec
from rowkind.operators.rank.ranking import Ranking, Ties
from tests.oracle.ranked import RankInput
from tests.rows_read import rows_read
from tests.unit.operators.partitions import Partitions, top


def test_append_keeps_only_rows_that_can_reach_the_range() -> None:
    """For an append-only input, only rows that can reach the range are kept."""
    ranks = top(3, first=2, strategy="append")
    ranks.take(*(f"+I {n} 7 {n}" for n in range(100, 0, -1)))
    ranks.take("+I 0 7 0", "+I 101 7 101")

    assert ranks.take("+I 102 7 102") == []
    assert ranks.live == 3


def test_append_keeps_all_ties_of_a_rank() -> None:
    """For an append-only input, RANK <= 1 keeps every row with the best value until a better one arrives."""
    ranks = top(1, function="rank", strategy="append")
    ranks.take("+I 1 7 10", "+I 2 7 10", "+I 3 7 20")

    assert ranks.live == 2
    assert ranks.take("+I 4 7 5") == ["+I 4 7 5", "-D 1 7 10", "-D 2 7 10"]
    assert ranks.live == 1


def test_a_large_partition_is_not_read_as_a_whole() -> None:
    """Replacing the first of 20,000 rows reads only some dozens of them."""
    ranks = top(10)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(20_000)))
    with rows_read() as read:
        assert ranks.take("-D 0 7 0", "+I 0 7 50000") == ["+I 10 7 10", "-D 0 7 0"]
    assert 0 < sum(read) <= 4 * (10 + rank.MARGIN)


@pytest.mark.parametrize("ties", ["earliest first", "latest first"])
def test_of_very_many_ties_only_the_first_are_read(ties: Ties) -> None:
    """With 20,000 ties, a new row reads only some dozens of them, for either order of ties."""
    ranks = top(2, ties=ties)
    ranks.take(*(f"+I {n} 7 1" for n in range(20_000)))
    gone, come = ("19998", "20000") if ties == "latest first" else ("1", "0")
    at = {"earliest first": [], "latest first": [f"+I {come} 7 1", f"-D {gone} 7 1"]}[ties]
    with rows_read() as read:
        assert ranks.take("+I 20000 7 1") == at
        assert ranks.take("+I 20001 7 0")[0] == "+I 20001 7 0"
    assert 0 < sum(read) <= 4 * (2 + rank.MARGIN)


def test_many_rows_with_one_order_code_and_different_order_keys_are_read_together() -> None:
    """Of many rows with one order code, the first by order key is found, even if it arrived last."""
    ranks = Partitions(
        RankSpec(Ranking("row_number", 1, 1), by_seq=True), RankInput("multiset", by_seq=True, stretch=2)
    )
    ranks.take(*(f"+I {n} 7 5" for n in range(2000)))

    assert ranks.take("+I 2000 7 4") == ["+I 2000 7 4", "-D 0 7 5"]
    assert ranks.take("+I 2001 7 6") == []
    assert ranks.take("+I 2002 7 3") == ["+I 2002 7 3", "-D 2000 7 4"]
    assert ranks.take("-D 2002 7 3", "-D 2000 7 4") == ["+I 0 7 5", "-D 2002 7 3"]


def test_what_a_queue_leaves_at_its_top_is_merged_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first rows are deleted again and again, the deleted entries are merged away and not read every time."""
    monkeypatch.setattr(compaction, "MOST_IN_VAIN", 100)
    ranks = top(2)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(2000)))
    most = 0
    for first in range(0, 1500, 5):
        with rows_read() as read:
            ranks.take(*(f"-D {n} 7 {n}" for n in range(first, first + 5)))
        most = max(most, sum(read))

    assert most < 1000
