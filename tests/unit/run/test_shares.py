"""The share of dead letters among a table's records, and when it is reported."""

from __future__ import annotations

from rowkind.service.execute.metrics import sample
from rowkind.service.monitoring.dead_letter_ratio import Shares


def counted(rows: int = 0, letters: int = 0, table: str = "orders") -> dict[str, float]:
    """Return the counters of a task that has read a table."""
    return {
        sample("rowkind_rows_in_total", table=table, kind="+I"): rows,
        sample("rowkind_dead_letters_total", table=table, reason="row kind"): letters,
    }


def test_a_hundred_records_of_which_none_is_a_row_are_told_at_once() -> None:
    """A hundred records that are all dead letters are reported at once with the reason; other tables are not."""
    shares = Shares()
    shares.add(counted(letters=99), 0.0)
    assert shares.many(1.0) == []
    shares.add(counted(letters=1) | counted(rows=5, table="payments"), 1.0)

    (share,) = shares.many(2.0)

    assert share.ratio == 1.0
    assert str(share).startswith("table orders: 100% of its last 100 records are dead letters (row kind 100). ")


def test_more_than_a_tenth_of_few_records_is_told_after_a_minute() -> None:
    """If more than a tenth of few records are dead letters, the table is reported after a minute."""
    shares = Shares()
    shares.add(counted(rows=8, letters=2), 0.0)
    shares.add(counted(rows=9, letters=1, table="payments"), 0.0)
    assert shares.many(59.0) == []

    (share,) = shares.many(60.0)

    assert (share.table, share.records, share.letters) == ("orders", 10, {"row kind": 2})


def test_what_is_past_is_forgotten_when_there_is_more() -> None:
    """The ratio covers the records of the last minute, or the last 100 if these are more."""
    shares = Shares()
    shares.add(counted(letters=50), 0.0)
    shares.add(counted(rows=99), 30.0)
    assert [each.table for each in shares.many(300.0)] == ["orders"]
    shares.add(counted(rows=1), 300.0)
    assert shares.many(300.0) == []
