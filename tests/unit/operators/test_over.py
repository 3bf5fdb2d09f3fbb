"""OVER: a batch reads only the rows of the state around its changes."""

from __future__ import annotations

from collections import Counter

from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.over.framing import Frame
from rowkind.operators.over.over import Over
from tests.changelogs import Change, Row, changed
from tests.oracle.overs import OverInput, call, over, position, spec
from tests.rows_read import rows_read

OF = OverInput("multiset", by_seq=True)
ROWS = 400
CALLS = (
    call("sum", Frame("rows", -2, 1)),
    call("count", Frame("range", -9, 3)),
    call("lag", Frame("rows", -1, -1)),
)


def test_changes_far_apart_are_read_each_by_itself() -> None:
    """If a partition changes at its start, middle and end, the rows between are not read."""
    operator = Over(spec(CALLS, OF))
    stores = {name: MemoryStore() for name in operator.arrangements}
    rows: list[Row] = [(3 * at, 1, at) for at in range(ROWS)]
    batch = [Change(0, RowKind.INSERT, row, seq) for seq, row in enumerate(rows)]
    operator.process(OF.columns(batch), stores, 0)
    goes, comes = [rows[5], rows[ROWS // 2], rows[ROWS - 3]], [(1, 1, ROWS // 2), (3, 1, 5)]
    batch = [Change(0, RowKind.DELETE, row, ROWS) for row in goes]
    batch += [Change(0, RowKind.INSERT, row, ROWS + at) for at, row in enumerate(comes, 1)]
    with rows_read() as read:
        output = operator.process(OF.columns(batch), stores, 0)
    assert sum(read) < ROWS // 2
    left = [each for each in enumerate(rows) if each[1] not in goes]
    expected = over([*left, *((ROWS + at, row) for at, row in enumerate(comes, 1))], CALLS)
    expected.subtract(over(enumerate(rows), CALLS))
    assert +changed(output.rows) == +expected
    assert +Counter({row: -count for row, count in changed(output.rows).items()}) == -expected


def test_a_row_that_comes_last_reads_one_where_values_are_passed_over() -> None:
    """LAG with IGNORE NULLS reads few rows for a new last row, because each row stores its previous values."""
    calls = (call("lag", Frame("rows", None, -1), 3, skips=True),)
    operator = Over(spec(calls, OF))
    stores = {name: MemoryStore() for name in operator.arrangements}
    rows: list[Row] = [(3 * at, 1, at if at % 5 == 0 else None) for at in range(ROWS)]
    rows = [(at, k, v) for at, k, v in rows if v is not None or (at or 0) > 3 * ROWS - 30]
    ordered = sorted(rows, key=position)
    batch = [Change(0, RowKind.INSERT, row, seq) for seq, row in enumerate(ordered)]
    operator.process(OF.columns(batch), stores, 0)
    last = (3 * ROWS, 1, ROWS)
    with rows_read() as read:
        output = operator.process(OF.columns([Change(0, RowKind.INSERT, last, ROWS)]), stores, 0)
    assert sum(read) < 10
    expected = over([*enumerate(ordered), (ROWS, last)], calls)
    expected.subtract(over(enumerate(ordered), calls))
    assert changed(output.rows) == +expected
