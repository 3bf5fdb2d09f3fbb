"""What Debezium's envelopes say, as rows that are retracted and rows that are inserted.

    c       the row `after` is new
    r       a snapshot has read the row `after`, which may have been sent before
    u       the row `before` has become `after`
    d       the row `before` is gone
    t       the table was truncated: all its rows are gone

A database need not say what a row was before. The key of the old row is enough, and without it the key of the record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rowkind.avro.buffers import validity
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Indices, Int8s, Mask
from rowkind.service.kafka.bad_records import Faults
from rowkind.service.kafka.value_format import Envelopes
from rowkind.service.physical.source_table import SourceTable

_OPERATIONS = ("c", "r", "u", "d")
_NO_AFTER = "it does not say what the row is now: `after` is missing"
_NO_BEFORE = (
    "it does not say what the row was before: have the database do so (REPLICA IDENTITY FULL, or a full row image), or "
    "do not say `exact` of the table"
)


@dataclass(frozen=True)
class Turns:
    """Which envelopes retract a row and which insert one, with the row kind of each; and which `empty` the table."""

    goes: Indices
    goes_as: Int8s
    comes: Indices
    comes_as: Int8s
    empty: Indices


def turns(found: Envelopes, where: Indices, faults: Faults, *, source: SourceTable, moved: Mask) -> Turns:
    """What the envelopes of the records at `where` do; those with faults do nothing.

    In mode retract each row is retracted as it was, also by an update. In mode upsert an inserted row replaces the one
    with its key, so that an update retracts a row only if it is `moved`: if it has changed the primary key.
    A snapshot reads rows that may be there already, so its row replaces the one with its key in both modes.
    """
    whole = source.mode == "retract"
    op = np.array(found.op, object)
    truncation = np.isin(op, ("t",)) & source.truncates
    for row in np.flatnonzero(~np.isin(op, _OPERATIONS) & ~truncation & ~faults.bad[where]).tolist():
        faults.add(int(where[row]), "changelog", _refusal(op[row], source))
    update = np.isin(op, ("u",))
    new, old = np.isin(op, ("c", "r", "u")), np.isin(op, ("d",)) | (update & (whole | moved))
    faults.add_all(where[new & ~validity(found.after) & ~faults.bad[where]], "changelog", _NO_AFTER)
    if whole:
        faults.add_all(where[old & ~validity(found.before) & ~faults.bad[where]], "changelog", _NO_BEFORE)
    good = ~faults.bad[where]
    goes, comes = np.flatnonzero(old & good), np.flatnonzero(new & good)
    goes_as = np.where(update[goes] & whole, RowKind.UPDATE_BEFORE, RowKind.DELETE).astype(np.int8)
    replaces = update[comes] | (not whole) | (np.isin(op[comes], ("r",)) & source.replaces)
    comes_as = np.where(replaces, RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
    return Turns(goes, goes_as, comes, comes_as, np.flatnonzero(truncation & good))


def _refusal(op: object, source: SourceTable) -> str:
    if op == "t":
        return (
            f"the table was truncated, and its rows stay: with `on_truncate: empty`, the job empties table "
            f"{source.table} too"
        )
    return f"{op!r} is no operation of Debezium's: expected c, r, u, d or t"
