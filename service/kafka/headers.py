"""Read the row kinds of records from their headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rowkind.operators.columns.changes import Int8s
from rowkind.service.physical.row_kind import RowKindHeader

Headers = list[tuple[str, bytes | None]] | None
"""The headers of a record in their order; a name may occur more than once."""

MISSING = -1
UNKNOWN = -2


def row_kinds(headers: Sequence[Headers], header: RowKindHeader) -> tuple[Int8s, bool]:
    """Return each record's row kind, or `MISSING` or `UNKNOWN`, and whether any record may have other headers.

    If a record has several row kind headers, the last one counts.
    """
    kinds = np.full(len(headers), MISSING, np.int8)
    rows = np.flatnonzero(np.fromiter(map(bool, headers), np.bool_, len(headers)))
    some: Sequence[Any] = headers if len(rows) == len(headers) else [headers[row] for row in rows.tolist()]
    name, ordinal = header.header, header.values.get
    try:
        # Nearly every record has exactly this one header, so this loop avoids a function call per record.
        found = [ordinal(value, UNKNOWN) if other == name else MISSING for ((other, value),) in some]
    except ValueError:
        found = [_last(record, header) for record in some]
        others = True
    else:
        others = MISSING in found
    kinds[rows] = found
    return kinds, others


def _last(record: Sequence[tuple[str, bytes]], header: RowKindHeader) -> int:
    for name, value in reversed(record):
        if name == header.header:
            return header.values.get(value, UNKNOWN)
    return MISSING
