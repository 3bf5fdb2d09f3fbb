"""The in-memory engine over plans made by hand, against SQL over the finished tables."""

from __future__ import annotations

import pytest

from rowkind.operators.columns.changes import Rows
from rowkind.service.physical import PhysicalSink
from rowkind.service.run.memory import Fold, MemoryEngine
from tests.queries import COUNTED, ORDERS, Shop, counted, everything, rows_of, scan, select
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds())
def test_a_query_of_every_operator_is_what_sql_says_after_every_batch(seed: int) -> None:
    """Aggregates, ranks, joins of all kinds, normalizing and a union, in one plan, over random tables."""
    sink, shop = everything(), Shop(f"everything {seed}")
    engine, fold = MemoryEngine(sink), Fold(keyed=False)
    for number in range(12):
        fold.apply(engine.batch(shop.batch(8), now=number))

        assert rows_of(sink.value, fold.payloads) == shop.result()


def test_a_count_of_nothing_is_there_from_the_first_batch_on() -> None:
    """A global aggregate says 0 before any row has come, and says it once."""
    rows = scan("o", ORDERS, "append", select(ORDERS, nets=True))
    sink = PhysicalSink(
        "n", "n", "retract", counted("aggregate_1", rows, select(COUNTED)), (), COUNTED, None, exchange=False
    )
    engine = MemoryEngine(sink)

    first, second = engine.batch({}, now=1), engine.batch({"orders": Rows.empty()}, now=2)

    assert rows_of(COUNTED, first.payload.to_pylist()) == {(0,): 1}
    assert len(second) == 0
