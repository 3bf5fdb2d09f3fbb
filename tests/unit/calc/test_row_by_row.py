"""The value of an expression in a row depends on that row alone, not on other rows of the batch."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from rowkind.service.execute.expressions import evaluate
from tests.seeds import seeds
from tests.spark.expressions import COLUMNS, random_expression, random_value
from tests.spark.sql_oracle import compiled

_ROWS = 12
_ENDS: dict[str, tuple[int, ...]] = {
    "i": (2**31 - 1, -(2**31)),
    "l": (2**63 - 1, -(2**63)),
    "day": (2**31 - 1, -(2**31), 2_932_897, -719_529),
    "ts": (2**63 - 1, -(2**63), 9_223_371_331_200_000_000, 253_402_300_800_000_000),
    "nt": (2**63 - 1, -(2**63), 9_223_371_331_200_000_000, 253_402_300_800_000_000),
}
"""Values at the ends of types; times are in days or microseconds since the epoch."""


def _column(rng: random.Random, name: str) -> pa.Array:
    type_ = COLUMNS.type(name).arrow
    values: list[Any] = []
    for _ in range(_ROWS):
        if name in _ENDS and rng.random() < 0.3:
            number = pa.array([rng.choice(_ENDS[name])], pa.int32() if type_.bit_width == 32 else pa.int64())
            values.append(number.view(type_))
        else:
            values.append(pa.array([random_value(rng, name)], type_))
    return pa.concat_arrays(values)


@pytest.mark.parametrize("seed", seeds(24))
def test_a_row_has_its_value_whatever_is_beside_it(seed: int) -> None:
    """A row has the same value alone and in a batch, even if it is NULL or fails, or another row is out of range."""
    rng = random.Random(seed)
    columns = {name: _column(rng, name) for name in COLUMNS.names}
    for _ in range(5):
        text = random_expression(rng, 2)
        if (expression := compiled(text, COLUMNS)) is None or not expression.type.nullable:
            continue
        own = {name: columns[name] for name in expression.columns}
        together = evaluate([expression], own, _ROWS, nulls=True)[expression]
        for row in range(_ROWS):
            alone = evaluate([expression], {name: each.slice(row, 1) for name, each in own.items()}, 1, nulls=True)
            assert _same(together.slice(row, 1), alone[expression]), f"seed {seed}, row {row}: {text}"


def _same(one: pa.Array, other: pa.Array) -> bool:
    """Return whether both arrays have the same values, with NaN equal to NaN."""
    return bool(one.equals(other)) or str(one) == str(other)
