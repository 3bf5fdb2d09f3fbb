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


def test_a_table_without_valid_rows_is_reported_from_the_third_record_on() -> None:
    """The message has the ratio, the reasons and the remedy; tables without dead letters are not reported."""
    shares = Shares()
    shares.add(counted(letters=2), 0.0)
    assert shares.many(1.0) == []
    shares.add(counted(letters=1) | counted(rows=5, table="payments"), 1.0)

    (share,) = shares.many(2.0)

    assert share.ratio == 1.0
    assert str(share).startswith("table orders: 100% of its last 3 records are dead letters (row kind 3). ")


def test_a_tenth_is_not_reported_and_more_is() -> None:
    """The ratio must exceed a tenth of the records."""
    shares = Shares()
    shares.add(counted(rows=26, letters=3), 0.0)
    shares.add(counted(rows=27, letters=3, table="payments"), 0.0)

    (share,) = shares.many(0.0)

    assert (share.table, share.records, share.letters) == ("orders", 29, {"row kind": 3})


def test_what_is_past_is_forgotten_when_there_is_more() -> None:
    """The ratio covers the records of the last minute, or the last 100 if these are more."""
    shares = Shares()
    shares.add(counted(letters=50), 0.0)
    shares.add(counted(rows=99), 30.0)
    assert [each.table for each in shares.many(300.0)] == ["orders"]
    shares.add(counted(rows=1), 300.0)
    assert shares.many(300.0) == []
