"""Translate Debezium envelopes to retracted and inserted rows, according to their operation `op`.

    c       create: the row `after` is new
    r       read: a snapshot has read the row `after`, which may have been sent already
    u       update: the row `before` was changed to `after`
    d       delete: the row `before` was deleted
    t       truncate: all rows of the table were deleted

A database may omit the old row or parts of it. In mode upsert, the old row's key is enough; if the old row is missing,
the record's key is used.
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
_NO_AFTER = "the new row is missing: the envelope has no `after`"
_NO_BEFORE = (
    "the old row is missing: the envelope has no `before`. Configure the database to log whole rows (REPLICA IDENTITY "
    "FULL, or a full row image), or remove `exact` from the table"
)


@dataclass(frozen=True)
class Turns:
    """The effects of envelopes: which of them retract a row (`goes`) or insert a row (`comes`), and the row kinds.

    `empty`: the envelopes that truncate the table.
    """

    goes: Indices
    goes_as: Int8s
    comes: Indices
    comes_as: Int8s
    empty: Indices


def turns(found: Envelopes, where: Indices, faults: Faults, *, source: SourceTable, moved: Mask) -> Turns:
    """Return the effects of the envelopes in the records at `where`. Envelopes with faults have no effect.

    In mode retract, deletes and updates retract exactly the row `before`. In mode upsert, an inserted row replaces
    the row with the same key, so an update retracts the old row only if its primary key changed (`moved`). A snapshot
    may read rows that were sent before. A snapshot's row therefore replaces the row with the same key: always in mode
    upsert, and in mode retract if the table has a primary key.
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
            f"the table was truncated, but its rows are kept: with `on_truncate: empty`, the job empties table "
            f"{source.table} too"
        )
    return f"{op!r} is not an operation of Debezium: expected c, r, u, d or t"
