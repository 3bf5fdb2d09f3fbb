"""The in-memory engine with manually built plans, compared with SQL over the complete tables."""

from __future__ import annotations

import pytest

from rowkind.operators.columns.changes import Rows
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import Fold, MemoryEngine
from tests.queries import COUNTED, NAMED, ORDERS, Shop, counted, everything, named, rows_of, scan, select
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds())
def test_a_query_of_every_operator_is_what_sql_says_after_every_batch(seed: int) -> None:
    """A plan with aggregates, ranks, joins of all kinds, normalize and union gives SQL's result after every batch."""
    sink, shop = everything(), Shop(f"everything {seed}")
    engine, fold = MemoryEngine(sink), Fold(keyed=False)
    for number in range(12):
        fold.apply(engine.batch(shop.batch(8), now=number)[sink.name])

        assert rows_of(sink.value, fold.payloads) == shop.result()


def test_two_queries_that_share_operators_have_each_its_own_result() -> None:
    """Two sinks with shared operators have their own results, in either order."""
    for sinks in ((everything(), named()), (named(), everything())):
        shop = Shop("two queries")
        engine, folds = MemoryEngine(*sinks), {sink.name: Fold(keyed=False) for sink in sinks}
        assert len(engine.graph.operators) == len(MemoryEngine(everything()).graph.operators)
        for number in range(8):
            for name, changes in engine.batch(shop.batch(12), now=number).items():
                folds[name].apply(changes)
            found = {sink.name: rows_of(sink.value, folds[sink.name].payloads) for sink in sinks}
            assert found == {"all": shop.result(), "named": shop.result(NAMED)}


def test_a_count_of_nothing_is_there_from_the_first_batch_on() -> None:
    """A global count emits 0 in the first batch without rows, and only once."""
    rows = scan("o", ORDERS, "append", select(ORDERS, nets=True))
    sink = PhysicalSink(
        "n", "n", "retract", counted("aggregate_1", rows, select(COUNTED)), (), COUNTED, None, exchange=False
    )
    engine = MemoryEngine(sink)

    first, second = engine.batch({}, now=1)["n"], engine.batch({"orders": Rows.empty()}, now=2)["n"]

    assert rows_of(COUNTED, first.payload.to_pylist()) == {(0,): 1}
    assert len(second) == 0
