"""OVER: of its state a batch reads what lies around its changes, and no more."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rowkind.operators.arrangement.segment import Segment
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.framing import Frame
from rowkind.operators.over import Over
from tests.changelogs import Change, Row, changed
from tests.oracle.overs import OverInput, call, over, spec

OF = OverInput("multiset", by_seq=True)
ROWS = 400
CALLS = (
    call("sum", Frame("rows", -2, 1)),
    call("count", Frame("range", -9, 3)),
    call("lag", Frame("rows", -1, -1)),
)


def test_changes_far_apart_are_read_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that changes at its start, in its middle and at its end is not read in between."""
    operator = Over(spec(CALLS, OF))
    stores = {name: MemoryStore() for name in operator.arrangements}
    rows: list[Row] = [(3 * at, 1, at) for at in range(ROWS)]
    batch = [Change(0, RowKind.INSERT, row, seq) for seq, row in enumerate(rows)]
    operator.process(OF.columns(batch), stores, 0)
    goes, comes = [rows[5], rows[ROWS // 2], rows[ROWS - 3]], [(1, 1, ROWS // 2), (3, 1, 5)]
    batch = [Change(0, RowKind.DELETE, row, ROWS) for row in goes]
    batch += [Change(0, RowKind.INSERT, row, ROWS + at) for at, row in enumerate(comes, 1)]
    read = _counted(monkeypatch)
    output = operator.process(OF.columns(batch), stores, 0)
    assert sum(read) < ROWS // 2
    left = [each for each in enumerate(rows) if each[1] not in goes]
    expected = over([*left, *((ROWS + at, row) for at, row in enumerate(comes, 1))], CALLS)
    expected.subtract(over(enumerate(rows), CALLS))
    assert +changed(output.rows) == +expected
    assert +Counter({row: -count for row, count in changed(output.rows).items()}) == -expected


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each reading of a segment gives from now on."""
    find, read = Segment.find, list[int]()

    def counted(*arguments: Any) -> Any:
        read.append(len(found := find(*arguments)))
        return found

    monkeypatch.setattr(Segment, "find", counted)
    return read
