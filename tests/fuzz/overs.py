"""Calls over a window: functions of all rows of a partition, or of a row's neighbors in an order.

The order uses all columns. Only rows that are equal in every column are ties, so that their order does not change the
result.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz.expressions import Name
from tests.fuzz.schemas import Kind

_ORDERED = 0.5
_DIRECTIONS = ("", "", " DESC", " NULLS LAST")
_FRAMES = (
    "",
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)


def over(rng: random.Random, names: Sequence[Name], call: str, kind: Kind) -> tuple[str, Kind]:
    """Return an aggregate over the partition, or a function over ordered rows, and the kind of its value."""
    by = f"PARTITION BY {rng.choice(names).text}" if rng.random() < 0.8 else ""
    if rng.random() > _ORDERED:
        return f"{call} OVER ({by})", kind
    read = rng.choice(names)
    order = ", ".join(f"{each.text}{rng.choice(_DIRECTIONS)}" for each in rng.sample(names, len(names)))
    window = f"{by} ORDER BY {order}".strip()
    choices: list[tuple[str, Kind, str]] = [
        (f"LAG({read.text})", read.kind, ""),
        (f"LEAD({read.text}, 2)", read.kind, ""),
        ("NTILE(2)", "int", ""),
        ("RANK()", "int", ""),
        ("CUME_DIST()", "ratio", ""),
        (f"FIRST_VALUE({read.text})", read.kind, rng.choice(_FRAMES)),
        (f"LAST_VALUE({read.text})", read.kind, rng.choice(_FRAMES)),
        (f"MAX({read.text})", read.kind, rng.choice(_FRAMES)),
        (f"COUNT({read.text})", "int", rng.choice(_FRAMES)),
    ]
    if read.kind in ("int", "decimal"):
        choices += [(f"SUM({read.text})", read.kind, rng.choice(_FRAMES))] * 2
    call, kind, frame = rng.choice(choices)
    return f"{call} OVER ({window}{frame})", kind
