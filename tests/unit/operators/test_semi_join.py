"""The semi join and anti join operators, case by case."""

from __future__ import annotations

import pytest

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.join.input import Side
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from rowkind.operators.operator import Output
from tests import changelogs
from tests.changelogs import Change, Row, Table, unpack
from tests.oracle.facts import with_facts
from tests.oracle.inputs import TABLES

L, R = 0, 1
INSERT, DELETE, BEFORE, AFTER = RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
Step = tuple[int, RowKind, Row]


class Running:
    """A semi or anti join on column 1 of rows (ID, key, value), batch by batch."""

    def __init__(
        self,
        kind: SemiJoinKind,
        *,
        layout: Layout = "unique key",
        ttls: tuple[int | None, int | None] = (None, None),
        payload: tuple[int, ...] = (0, 1, 2),
    ) -> None:
        self.table = Table(TABLES[layout].key, TABLES[layout].sub_key, payload)
        self.join = SemiJoin(SemiJoinSpec(kind, *(Side(layout, ttl, by_seq=True) for ttl in ttls)))
        self.stores = {name: MemoryStore() for name in self.join.arrangements}
        self.seq = 0
        self.output: Output | None = None

    def batch(self, *steps: Step, now: int = 0) -> list[tuple[str, Row]]:
        """Process these changes as one batch; return what is emitted as symbol and row, sorted."""
        batch = []
        for side, kind, row in steps:
            self.seq += 1
            batch.append(Change(side, kind, row, self.seq))
        changes = changelogs.packed(batch, [self.table] * 2)
        if "facts" in self.stores:
            changes = with_facts(changes)
        self.output = self.join.process(changes, self.stores, now)
        rows = self.output.rows
        symbols = ["+" if kind == RowKind.INSERT else "-" for kind in rows.kind]
        return sorted(zip(symbols, map(unpack, rows.payload.to_pylist()), strict=True), key=repr)


ORDER, PAYMENT, SECOND = (1, 7, 10), (100, 7, 5), (101, 7, 6)
NOBODYS, KEYLESS = (2, None, 20), (102, None, 5)


def test_a_row_is_in_the_semi_join_once_while_it_has_any_match() -> None:
    """A semi join emits a left row with its first match and retracts it when its last match is retracted."""
    join = Running("semi")
    assert join.batch((L, INSERT, ORDER)) == []
    assert join.batch((R, INSERT, PAYMENT)) == [("+", ORDER)]
    assert join.batch((R, INSERT, SECOND)) == []
    assert join.batch((R, DELETE, PAYMENT)) == []
    assert join.batch((R, DELETE, SECOND)) == [("-", ORDER)]


def test_a_row_is_in_the_anti_join_exactly_when_it_is_not_in_the_semi_join() -> None:
    """An anti join retracts a left row with its first match and emits it again when its last match is retracted."""
    join = Running("anti")
    assert join.batch((L, INSERT, ORDER)) == [("+", ORDER)]
    assert join.batch((R, INSERT, PAYMENT), (R, INSERT, SECOND)) == [("-", ORDER)]
    assert join.batch((R, DELETE, PAYMENT), (R, DELETE, SECOND)) == [("+", ORDER)]


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_an_update_that_keeps_its_matches_passes_as_an_update(kind: SemiJoinKind) -> None:
    """An update of an emitted row that stays in the result retracts the old row and inserts the new one."""
    join = Running(kind)
    out = join.batch((L, INSERT, ORDER), *[(R, INSERT, PAYMENT)] * (kind == "semi"))
    assert out == [("+", ORDER)]
    new = (1, 7, 11)
    assert join.batch((L, BEFORE, ORDER), (L, AFTER, new)) == [("+", new), ("-", ORDER)]
    assert join.batch((L, AFTER, new)) == []


def test_an_update_of_a_row_that_is_not_out_puts_nothing_out() -> None:
    """If neither half of an update has a match, a semi join emits nothing."""
    join = Running("semi")
    join.batch((L, INSERT, ORDER))
    assert join.batch((L, BEFORE, ORDER), (L, AFTER, (1, 7, 11))) == []


def test_a_row_that_moves_to_another_key_with_a_match_and_equal_bytes_stays() -> None:
    """If the key is not in the payload, moving a row to another key with a match emits nothing."""
    join = Running("semi", payload=(0, 2))
    assert join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), (R, INSERT, (5, 8, 5))) == [("+", (1, 10))]
    assert join.batch((L, BEFORE, ORDER), (L, AFTER, (1, 8, 10))) == []


def test_null_keys_never_pass_a_semi_join_and_always_an_anti_join() -> None:
    """A row with a NULL key is never emitted by a semi join and always by an anti join."""
    assert Running("semi").batch((L, INSERT, NOBODYS), (R, INSERT, KEYLESS)) == []
    assert Running("anti").batch((L, INSERT, NOBODYS), (R, INSERT, KEYLESS)) == [("+", NOBODYS)]


def test_everything_is_not_in_an_empty_subquery_even_null() -> None:
    """With NOT IN over an empty subquery even NULL is emitted, and it is retracted once the subquery has a row."""
    join = Running("null-aware anti", layout="multiset")
    assert join.batch((L, INSERT, ORDER), (L, INSERT, NOBODYS)) == [("+", ORDER), ("+", NOBODYS)]
    assert join.batch((R, INSERT, (100, 8, 5))) == [("-", NOBODYS)]
    assert join.batch((R, DELETE, (100, 8, 5))) == [("+", NOBODYS)]


def test_nothing_is_not_in_a_subquery_that_has_a_null() -> None:
    """While the subquery of NOT IN has a NULL, no row is emitted; afterwards the rows without a match are."""
    join = Running("null-aware anti", layout="multiset")
    join.batch((L, INSERT, ORDER), (L, INSERT, (3, 9, 30)), (R, INSERT, (100, 9, 5)))
    assert join.batch((R, INSERT, KEYLESS)) == [("-", ORDER)]
    assert join.batch((R, INSERT, KEYLESS), (L, INSERT, (4, 4, 4))) == []
    assert join.batch((R, DELETE, KEYLESS)) == []
    assert join.batch((R, DELETE, KEYLESS)) == [("+", ORDER), ("+", (4, 4, 4))]


def test_an_expired_match_neither_brings_nor_takes_a_row() -> None:
    """The expiry of a match emits nothing; the result changes when the last visible match is retracted."""
    for kind, sign in (("semi", "-"), ("anti", "+")):
        join = Running(kind, ttls=(None, 10))  # type: ignore[arg-type]
        join.batch((L, INSERT, ORDER), (R, INSERT, PAYMENT), now=0)
        assert join.batch((R, INSERT, SECOND), now=20) == []
        assert join.batch((R, DELETE, PAYMENT), now=21) == []
        assert join.output is not None
        assert (len(join.output.unmatched), join.output.expired) == (0, 1)
        assert join.batch((R, DELETE, SECOND), now=22) == [(sign, ORDER)]


def test_an_expired_left_row_stays_in_the_output() -> None:
    """An expired left row ignores its matches, and its later delete retracts it."""
    join = Running("anti", ttls=(10, None))
    assert join.batch((L, INSERT, ORDER), now=0) == [("+", ORDER)]
    assert join.batch((R, INSERT, PAYMENT), now=10) == []
    assert join.batch((R, DELETE, PAYMENT), now=11) == []
    assert join.batch((L, DELETE, ORDER), now=12) == [("-", ORDER)]
    assert join.output is not None
    assert (len(join.output.unmatched), join.output.expired) == (0, 1)


@pytest.mark.parametrize("kind", ["semi", "anti", "null-aware anti"])
def test_no_state_is_left_when_all_rows_are_retracted(kind: SemiJoinKind) -> None:
    """When all rows are retracted, all stores are empty, the one of the facts too."""
    join = Running(kind, layout="multiset")
    rows = [(L, ORDER), (L, NOBODYS), (R, PAYMENT), (R, KEYLESS)]
    join.batch(*((side, INSERT, row) for side, row in rows))
    join.batch(*((side, DELETE, row) for side, row in rows))
    assert all(list(store) == [] for store in join.stores.values())
