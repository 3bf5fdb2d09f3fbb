"""Rank, case by case: a changelog goes in, a changelog comes out.

Rows are written `id partition value`; with the number in the output, it is the last column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rowkind.operators.arrangement import compaction
from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.segment import Segment
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int64s, binary
from rowkind.operators.rank import rank
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import Ranking, Ties
from tests.changelogs import Change, Row, unpack
from tests.oracle.ranked import RankInput, identity, numbered

KINDS = {kind.symbol: kind for kind in RowKind}
SOURCE = RankInput("multiset", by_seq=True)
IDENTIFIED = RankInput("unique key", by_seq=True)


class Partitions:
    """A rank at work: takes a batch as text and gives what is emitted as text, sorted."""

    def __init__(self, spec: RankSpec, of: RankInput = SOURCE) -> None:
        self.store = MemoryStore()
        self.unmatched = 0
        self._of, self._rank, self._seq, self._now = of, Rank(spec), 0, 0

    def take(self, *changes: str, at: int | None = None) -> list[str]:
        """Apply `+I 1 7 100`, ... as one batch, at a time of the test's choosing."""
        batch = []
        for change in changes:
            kind, *columns = change.split()
            self._seq += 1
            row: Row = tuple(None if column == "NULL" else int(column) for column in columns)
            batch.append(Change(0, KINDS[kind], row, self._seq))
        self._now = self._now if at is None else at
        output = self._rank.process(self._of.columns(batch), {"rows": self.store}, self._now)
        self.unmatched = len(output.unmatched)
        pairs = zip(output.rows.kind.tolist(), output.rows.payload.to_pylist(), strict=True)
        return sorted(
            f"{RowKind(kind).symbol} {' '.join('NULL' if v is None else str(v) for v in unpack(payload))}"
            for kind, payload in pairs
        )

    @property
    def live(self) -> int:
        """How many rows the state keeps."""
        blob = self.store.get(MANIFEST)
        return 0 if blob is None else Manifest.from_blob(blob, "rows").weight


def top(last: int, **options: Any) -> Partitions:
    """ROW_NUMBER() <= last over an input that retracts, unless said otherwise."""
    of = {"function": "row_number", "first": 1, "last": last}
    of |= {name: options.pop(name) for name in ("function", "first", "ties", "strategy") if name in options}
    return Partitions(RankSpec(Ranking(**of), **({"by_seq": True} | options)))


def test_the_first_rows_of_each_partition_are_emitted() -> None:
    """Top 2 of two partitions, by ascending value."""
    ranks = top(2)

    assert ranks.take("+I 1 7 30", "+I 2 7 10", "+I 3 7 20", "+I 4 8 99") == ["+I 2 7 10", "+I 3 7 20", "+I 4 8 99"]


def test_a_better_row_pushes_the_last_one_out() -> None:
    """The row that leaves the range is taken back, the others are not mentioned."""
    ranks = top(2)
    ranks.take("+I 1 7 10", "+I 2 7 20")

    assert ranks.take("+I 3 7 15") == ["+I 3 7 15", "-D 2 7 20"]


def test_a_deleted_row_makes_room_for_the_next() -> None:
    """A delete inside the range pulls the next row in."""
    ranks = top(2)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30", "+I 4 7 40")

    assert ranks.take("-D 1 7 10") == ["+I 3 7 30", "-D 1 7 10"]


def test_a_delete_above_the_range_pulls_rows_through_it() -> None:
    """BETWEEN 3 AND 4: each row moves up by one, so one leaves at the top and one enters below."""
    ranks = top(4, first=3)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(1, 7)))

    assert ranks.take("-D 1 7 1") == ["+I 5 7 5", "-D 3 7 3"]


def test_only_the_second_row() -> None:
    """With = 2 there is nothing until there are two rows."""
    ranks = top(2, first=2)

    assert ranks.take("+I 1 7 10") == []
    assert ranks.take("+I 2 7 5") == ["+I 1 7 10"]


def test_a_move_inside_the_range_is_silent_without_the_number() -> None:
    """Rows that change places and stay in the range are not emitted."""
    ranks = top(3)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30", "+I 4 7 40")

    assert ranks.take("-U 2 7 20", "+U 2 7 5") == ["+I 2 7 5", "-D 2 7 20"]


def test_with_the_number_each_moved_row_is_an_update() -> None:
    """The rows whose number changes are emitted, the first one's did not."""
    ranks = top(3, numbered=numbered)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30")

    assert ranks.take("+I 4 7 15") == ["+I 2 7 20 3", "+I 4 7 15 2", "-D 2 7 20 2", "-D 3 7 30 3"]


def test_of_ties_the_earlier_arrival_is_first() -> None:
    """Three rows with one value: the two that came first."""
    ranks = top(2)

    assert ranks.take("+I 9 7 10", "+I 1 7 10", "+I 5 7 10") == ["+I 1 7 10", "+I 9 7 10"]
    assert ranks.take("-D 9 7 10") == ["+I 5 7 10", "-D 9 7 10"]


def test_a_row_that_goes_and_comes_back_is_last_of_its_ties() -> None:
    """A row that is written again has arrived again."""
    ranks = top(1)
    ranks.take("+I 1 7 10", "+I 2 7 10")

    assert ranks.take("-U 1 7 10", "+U 1 7 10") == ["+I 2 7 10", "-D 1 7 10"]


def test_rank_covers_all_ties() -> None:
    """RANK <= 2 has three rows where the second place is shared, and the next number is 4."""
    ranks = top(4, function="rank", numbered=numbered)

    assert ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 20", "+I 4 7 30", "+I 5 7 40") == [
        "+I 1 7 10 1",
        "+I 2 7 20 2",
        "+I 3 7 20 2",
        "+I 4 7 30 4",
    ]


def test_dense_rank_counts_values() -> None:
    """DENSE_RANK <= 2 has all rows with the two best values."""
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
    """Of three equal rows two are in the top 2; retracting one leaves two."""
    ranks = top(2)

    assert ranks.take("+I 1 7 10", "+I 1 7 10", "+I 1 7 10") == ["+I 1 7 10", "+I 1 7 10"]
    assert ranks.take("-D 1 7 10") == []
    assert ranks.take("-D 1 7 10") == ["-D 1 7 10"]


def test_rows_without_a_partition_value_are_one_partition() -> None:
    """NULL is a partition like any other value."""
    ranks = top(1)

    assert ranks.take("+I 1 NULL 20", "+I 2 NULL 10") == ["+I 2 NULL 10"]


def test_null_values_come_first_or_last_as_the_order_key_says() -> None:
    """Ascending NULL is first here, descending it is last."""
    descending_input = RankInput("multiset", by_seq=True, descending=True)
    ascending, descending = top(1), Partitions(RankSpec(Ranking("row_number", 1, 1)), descending_input)

    assert ascending.take("+I 1 7 10", "+I 2 7 NULL") == ["+I 2 7 NULL"]
    assert descending.take("+I 1 7 10", "+I 2 7 NULL") == ["+I 1 7 10"]


def test_rows_that_agree_in_all_but_the_order_key_are_kept_apart() -> None:
    """Order columns need not be in the payload: a retraction takes back the row with its own order key."""
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
    """It comes back as unmatched."""
    ranks = top(1)
    ranks.take("+I 1 7 10")

    assert ranks.take("-D 2 7 10", "-D 1 7 11") == []
    assert ranks.unmatched == 2


def test_append_keeps_only_rows_that_can_reach_the_range() -> None:
    """Of a hundred rows of one partition, BETWEEN 2 AND 3 keeps three."""
    ranks = top(3, first=2, strategy="append")
    ranks.take(*(f"+I {n} 7 {n}" for n in range(100, 0, -1)))
    ranks.take("+I 0 7 0", "+I 101 7 101")

    assert ranks.take("+I 102 7 102") == []
    assert ranks.live == 3


def test_append_keeps_all_ties_of_a_rank() -> None:
    """RANK <= 1 keeps every row with the best value, and forgets them when a better one comes."""
    ranks = top(1, function="rank", strategy="append")
    ranks.take("+I 1 7 10", "+I 2 7 10", "+I 3 7 20")

    assert ranks.live == 2
    assert ranks.take("+I 4 7 5") == ["+I 4 7 5", "-D 1 7 10", "-D 2 7 10"]
    assert ranks.live == 1


def test_improving_replaces_by_the_unique_key() -> None:
    """An update alone moves its row up; the one it replaces is taken back as it was."""
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
    """A row that is updated and keeps its value falls behind its ties, so these are kept."""
    ranks = Partitions(
        RankSpec(Ranking("row_number", 1, 1, strategy="improving"), identity=identity, by_seq=True), IDENTIFIED
    )
    ranks.take("+I 1 7 10", "+I 2 7 10")

    assert ranks.take("+U 1 7 10") == ["+I 2 7 10", "-D 1 7 10"]


def test_a_row_that_expires_counts_no_more_and_is_not_taken_back() -> None:
    """What follows it moves up when its partition changes next."""
    ranks = top(1, ttl_ms=10)
    ranks.take("+I 1 7 10", at=0)
    ranks.take("+I 2 7 20", at=5)

    assert ranks.take("+I 3 7 30", at=10) == ["+I 2 7 20"]
    assert ranks.take("-D 1 7 10", at=10) == []
    assert ranks.unmatched == 1
    assert ranks.take("-D 2 7 20", at=14) == ["+I 3 7 30", "-D 2 7 20"]


def test_a_number_that_changed_by_expiry_is_taken_back_as_it_was_emitted() -> None:
    """The row that was emitted as second and is now first is retracted with the number 2."""
    ranks = top(2, ttl_ms=10, numbered=numbered)
    ranks.take("+I 1 7 10", at=0)
    ranks.take("+I 2 7 20", at=5)

    assert ranks.take("+I 3 7 30", at=10) == ["+I 2 7 20 1", "+I 3 7 30 2", "-D 2 7 20 2"]


def test_writing_a_row_again_lengthens_its_life() -> None:
    """A refresh emits nothing, and the row stays beyond its first time."""
    ranks = top(1, ttl_ms=10)
    ranks.take("+I 1 7 10", at=0)

    assert ranks.take("-U 1 7 10", "+U 1 7 10", at=8) == []
    assert ranks.take("-D 1 7 10", at=15) == ["-D 1 7 10"]


def test_nothing_is_left_of_a_partition_whose_rows_are_gone() -> None:
    """When every row has been retracted there are no blobs."""
    ranks = top(2, numbered=numbered)
    ranks.take("+I 1 7 10", "+I 2 7 20", "+I 3 7 30")
    ranks.take("-D 3 7 30", "-D 2 7 20", "-D 1 7 10")

    assert list(ranks.store) == []


def test_a_large_partition_is_not_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing the first of 20,000 rows reads some dozens of them."""
    ranks = top(10)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(20_000)))
    read = _counted(monkeypatch)

    assert ranks.take("-D 0 7 0", "+I 0 7 50000") == ["+I 10 7 10", "-D 0 7 0"]
    assert 0 < sum(read) <= 4 * (10 + rank.MARGIN)


@pytest.mark.parametrize("ties", ["earliest first", "latest first"])
def test_of_very_many_ties_only_the_first_are_read(ties: Ties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come to 20,000 with one order key cost a few dozens of these, from whichever end."""
    ranks = top(2, ties=ties)
    ranks.take(*(f"+I {n} 7 1" for n in range(20_000)))
    read = _counted(monkeypatch)

    gone, come = ("19998", "20000") if ties == "latest first" else ("1", "0")
    at = {"earliest first": [], "latest first": [f"+I {come} 7 1", f"-D {gone} 7 1"]}[ties]
    assert ranks.take("+I 20000 7 1") == at
    assert ranks.take("+I 20001 7 0")[0] == "+I 20001 7 0"
    assert 0 < sum(read) <= 4 * (2 + rank.MARGIN)


def test_many_rows_with_one_order_code_and_different_order_keys_are_read_together() -> None:
    """The first of them may be the last that came, or come now, and is found."""
    ranks = Partitions(
        RankSpec(Ranking("row_number", 1, 1), by_seq=True), RankInput("multiset", by_seq=True, stretch=2)
    )
    ranks.take(*(f"+I {n} 7 5" for n in range(2000)))

    assert ranks.take("+I 2000 7 4") == ["+I 2000 7 4", "-D 0 7 5"]
    assert ranks.take("+I 2001 7 6") == []
    assert ranks.take("+I 2002 7 3") == ["+I 2002 7 3", "-D 2000 7 4"]
    assert ranks.take("-D 2002 7 3", "-D 2000 7 4") == ["+I 0 7 5", "-D 2002 7 3"]


def test_what_a_queue_leaves_at_its_top_is_merged_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first rows are taken away again and again, those that went are not read for ever."""
    monkeypatch.setattr(compaction, "MOST_IN_VAIN", 100)
    ranks = top(2)
    ranks.take(*(f"+I {n} 7 {n}" for n in range(2000)))
    read, most = _counted(monkeypatch), 0
    for first in range(0, 1500, 5):
        read.clear()
        ranks.take(*(f"-D {n} 7 {n}" for n in range(first, first + 5)))
        most = max(most, sum(read))

    assert most < 1000


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each reading of a segment gives, from now on."""
    read = []
    for name in ("find", "find_up_to"):
        function = getattr(Segment, name)

        def counted(segment: Segment, *arguments: object, function: object = function) -> object:
            result = function(segment, *arguments)  # type: ignore[operator]
            read.append(len(result[0]) if isinstance(result, tuple) else len(result))
            return result

        monkeypatch.setattr(Segment, name, counted)
    return read


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
    """Specs that no plan may make fail when they are made."""
    with pytest.raises(AssertionError):
        top(**({"last": 2} | wrong))  # type: ignore[arg-type]
