"""What Debezium's envelopes say, as rows that go and rows that come.

    c, r    the row `after` is new (r: a snapshot has read it)
    u       the row `before` has become `after`
    d       the row `before` is gone

A database need not say what a row was before; where only its key has to be known, that is no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rowkind.avro.buffers import validity
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Indices, Int8s
from rowkind.service.kafka.faults import Faults
from rowkind.service.kafka.value_format import Envelopes

_OPERATIONS = ("c", "r", "u", "d")
_NO_AFTER = "it does not say what the row is now: `after` is missing"
_NO_BEFORE = (
    "it does not say what the row was before: have the database do so (REPLICA IDENTITY FULL, or a full row image), or "
    "do not say `exact` of the table"
)


@dataclass(frozen=True)
class Turns:
    """Which envelopes take back a row and which bring one, with the row kind of each."""

    goes: Indices
    goes_as: Int8s
    comes: Indices
    comes_as: Int8s


def turns(found: Envelopes, where: Indices, faults: Faults, *, exact: bool) -> Turns:
    """What the envelopes of the records at `where` do; those with faults do nothing.

    `exact`: each row is taken back as it was, also by an update. Else a row that comes replaces the one with its key.
    """
    op = np.array(found.op, object)
    for row in np.flatnonzero(~np.isin(op, _OPERATIONS) & ~faults.bad[where]).tolist():
        faults.add(int(where[row]), "changelog", _refusal(op[row]))
    update = np.isin(op, ("u",))
    new, old = np.isin(op, ("c", "r", "u")), np.isin(op, ("d", "u") if exact else ("d",))
    faults.add_all(where[new & ~validity(found.after) & ~faults.bad[where]], "changelog", _NO_AFTER)
    if exact:
        faults.add_all(where[old & ~validity(found.before) & ~faults.bad[where]], "changelog", _NO_BEFORE)
    good = ~faults.bad[where]
    goes, comes = np.flatnonzero(old & good), np.flatnonzero(new & good)
    goes_as = np.where(update[goes], RowKind.UPDATE_BEFORE, RowKind.DELETE).astype(np.int8)
    comes_as = np.where(update[comes] | (not exact), RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
    return Turns(goes, goes_as, comes, comes_as)


def _refusal(op: object) -> str:
    if op == "t":
        return "the table was truncated, and nobody says of which rows: delete them instead"
    return f"{op!r} is no operation of Debezium's: expected c, r, u or d"
