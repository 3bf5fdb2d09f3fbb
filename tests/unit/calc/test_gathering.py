"""Aggregates over all values of a group, for edge cases."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.function import AggregateFunction
from rowkind.service.execute.gathering import Gathering
from rowkind.service.physical.aggregation import AggregateCall

BIGINT = Record.of({"x": "BIGINT"})


def gathered(
    function: AggregateFunction, type_: str, values: list[int | None], constants: tuple[str, ...] = ()
) -> object:
    """Return the result of group 1 of two groups, and assert that the empty group 0 gives NULL or an empty list."""
    call = AggregateCall(function, ("x",), Type.of(type_), constants=constants).named("c", "")
    packed = codec.encode(BIGINT, {"x": pa.array(values, pa.int64())})
    group, times = np.ones(len(values), np.int64), np.ones(len(values), np.int64)
    nothing, result = Gathering(BIGINT, call)(packed, group, times, 2).to_pylist()
    assert nothing in (None, [])
    return result


def test_percentiles_of_numbers_that_no_double_holds_are_rounded() -> None:
    """Integers that a double cannot represent are rounded as by a CAST to DOUBLE."""
    large = (1 << 53) + 1
    assert gathered("percentile_cont", "DOUBLE", [large], ("0.5",)) == float(1 << 53)
    assert gathered("percentile_disc", "DOUBLE", [large, -large], ("1",)) == float(1 << 53)
    assert gathered("percentile_disc", "ARRAY<BIGINT NOT NULL>", [large, -large], ("0", "1")) == [-large, large]


def test_a_group_of_nulls_has_nothing_to_gather() -> None:
    """A group of NULLs gives an empty list, and NULL for every other aggregate."""
    assert gathered("collect_list", "ARRAY<BIGINT NOT NULL> NOT NULL", [None, None]) == []
    assert gathered("mode", "BIGINT", [None]) is None
    assert gathered("percentile_cont", "ARRAY<DOUBLE NOT NULL>", [None], ("0.5", "1")) is None
