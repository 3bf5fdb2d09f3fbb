"""The dead letters of retractions that found no row to take back, as the policy `unmatched: dead_letter` asks for them.

The value is the row as JSON, with the columns that reached the operator. A row of a table has an origin, by which the
record itself is to be found; a row that another operator made has none.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from operators.changes import Changes, RowKind, binary
from service.kafka.dead_letter import DeadLetter
from service.plan.physical import Join, Node, Scan
from service.run.json_rows import decode


def dead_letters(node: Join, lost: Changes) -> pa.BinaryArray:
    """The dead letter of each retraction in `lost` that reached `node`."""
    letters: list[bytes | None] = [None] * len(lost)
    for side, source in enumerate((node.left, node.right)):
        members = np.flatnonzero(lost.side == side)
        rows = decode(source.calc.output, lost.payload.take(pa.array(members)))
        for at, row in zip(members.tolist(), rows, strict=True):
            kind = RowKind(int(lost.kind[at]))
            value = {_column(source, name): value for name, value in row.items()}
            letter = DeadLetter(
                table=source.table if isinstance(source, Scan) else source.node,
                stage=node.node,
                error="UnmatchedRetraction",
                message=f"{kind.symbol} of a row that is not there (never inserted, already gone, or expired)",
                value=json.dumps(value, default=str).encode(),
            )
            if isinstance(source, Scan):
                seq = int(lost.seq[at])
                letter = replace(letter, topic=source.topic, partition=seq & 0xFFFF, offset=seq >> 16)
            letters[at] = letter.to_bytes()
    return binary(letters)


def _column(source: Node, name: str) -> str:
    return name.removeprefix(f"{source.alias}.") if isinstance(source, Scan) else name
