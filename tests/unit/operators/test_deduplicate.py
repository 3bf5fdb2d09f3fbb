"""Deduplication, a rank with ROW_NUMBER = 1, case by case; rows are (ID, key, time)."""

from __future__ import annotations

from typing import Literal

import pytest

from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.rank.rank import Rank
from tests.changelogs import Change, Row, unpack
from tests.oracle.ranked import RankInput, deduplication

Signed = tuple[str, Row]


class Keys:
    """A deduplication operator over an input ordered by time or by arrival."""

    def __init__(
        self, keep: Literal["first", "last"], rows: Literal["append", "retract"] = "append", *, by_time: bool = True
    ) -> None:
        self.store = MemoryStore()
        self._of = RankInput("multiset", by_seq=True, descending=keep == "last", ordered=by_time)
        self._operator, self._seq = Rank(deduplication(keep, rows)), 0

    def take(self, *rows: Row, kind: RowKind = RowKind.INSERT) -> list[Signed]:
        """Apply these changes of one kind as one batch."""
        first, self._seq = self._seq, self._seq + len(rows)
        batch = [Change(0, kind, row, first + number) for number, row in enumerate(rows)]
        output = self._operator.process(self._of.columns(batch), {"rows": self.store}, 0)
        pairs = zip(output.rows.kind.tolist(), output.rows.payload.to_pylist(), strict=True)
        return sorted((RowKind(kind).symbol, unpack(payload)) for kind, payload in pairs)

    @property
    def live(self) -> int:
        """The number of rows in the state."""
        blob = self.store.get(MANIFEST)
        return 0 if blob is None else Manifest.from_blob(blob, "rows").weight


def test_the_first_by_time_replaces_one_that_came_before_it() -> None:
    """A row with an earlier time replaces the kept one, and a row with a later time changes nothing."""
    keys = Keys("first")

    assert keys.take((1, 7, 20), (2, 7, 30)) == [("+I", (1, 7, 20))]
    assert keys.take((3, 7, 40)) == []
    assert keys.take((4, 7, 10)) == [("+I", (4, 7, 10)), ("-D", (1, 7, 20))]


def test_the_first_by_time_of_equal_times_is_the_earlier_arrival() -> None:
    """Of rows with equal times, the first to arrive is kept."""
    keys = Keys("first")
    keys.take((1, 7, 20))

    assert keys.take((2, 7, 20)) == []


def test_the_last_by_time_of_equal_times_is_the_later_arrival() -> None:
    """A row with the same time replaces the kept one, and a row with an earlier time does not."""
    keys = Keys("last")

    assert keys.take((1, 7, 20)) == [("+I", (1, 7, 20))]
    assert keys.take((2, 7, 20)) == [("+I", (2, 7, 20)), ("-D", (1, 7, 20))]
    assert keys.take((3, 7, 19)) == []


def test_the_last_by_arrival_is_always_the_new_row() -> None:
    """Times are ignored, and in a batch only the last row is emitted."""
    keys = Keys("last", by_time=False)
    keys.take((1, 7, 20))

    assert keys.take((2, 7, 99), (3, 7, 10)) == [("+I", (3, 7, 10)), ("-D", (1, 7, 20))]


def test_the_first_by_arrival_stays() -> None:
    """Later rows change nothing."""
    keys = Keys("first", by_time=False)

    assert keys.take((1, 7, 20), (2, 7, 10)) == [("+I", (1, 7, 20))]
    assert keys.take((3, 7, 0)) == []


def test_the_same_row_again_puts_nothing_out() -> None:
    """A duplicate that is equal in every column emits nothing."""
    keys = Keys("last")
    keys.take((1, 7, 20))

    assert keys.take((1, 7, 20)) == []


@pytest.mark.parametrize("keep", ["first", "last"])
def test_an_input_that_only_inserts_leaves_one_row_per_key(keep: Literal["first", "last"]) -> None:
    """With an append-only input, the state has one row per key."""
    keys = Keys(keep)
    for number in range(20):
        keys.take(*((number, key, number % 7) for key in range(3)))

    assert keys.live == 3


def test_when_the_kept_row_is_retracted_the_next_takes_its_place() -> None:
    """A retracting input stores all rows, and emits the next one when the kept one is retracted."""
    keys = Keys("last", "retract")
    keys.take((1, 7, 10), (2, 7, 20), (3, 7, 30))

    assert keys.live == 3
    assert keys.take((3, 7, 30), kind=RowKind.DELETE) == [("+I", (2, 7, 20)), ("-D", (3, 7, 30))]
    assert keys.take((1, 7, 10), kind=RowKind.DELETE) == []
    assert keys.take((2, 7, 20), kind=RowKind.DELETE) == [("-D", (2, 7, 20))]
    assert list(keys.store) == []


def test_its_state_is_named_and_lives_as_long_as_the_spec_says() -> None:
    """Deduplication has one arrangement, with the TTL of the spec."""
    assert Rank(deduplication("last", "append", ttl_ms=5)).arrangements == {"rows": 5}
