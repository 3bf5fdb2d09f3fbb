"""COUNT(DISTINCT) of a hot group split by its values: two aggregates in sequence against one that counts directly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.partial import add_up
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.arrangement.store import MemoryStore
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Rows, binary, constant
from rowkind.operators.columns.hashing import hash64
from tests.changelogs import Row, fold, pack, strong_hash, unpack
from tests.oracle.aggregates import AGGREGATES, result, spec_of
from tests.oracle.inputs import random_batches
from tests.oracle.test_aggregate_oracle import INPUT, Case, columns, exact
from tests.seeds import seeds

BIGINT = pa.int64()


def _arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    return {"value": pa.array([unpack(payload)[1] for payload in payloads.to_pylist()], BIGINT)}


def _group(payloads: pa.BinaryArray) -> pa.BinaryArray:
    return binary(pack(unpack(payload)[:1]) for payload in payloads.to_pylist())


def _key_and_value(payloads: pa.BinaryArray) -> pa.BinaryArray:
    return binary(pack(unpack(payload)[1:]) for payload in payloads.to_pylist())


def _by(key: pa.BinaryArray, rows: Rows | Changes) -> Changes:
    side = rows.kind * 0
    return Changes(side, rows.kind, hash64(key), key, constant(b"", len(side)), rows.seq, rows.payload)


@pytest.mark.parametrize("number", seeds(5))
def test_a_distinct_count_is_a_count_over_distinct_rows(number: int) -> None:
    """SELECT DISTINCT k, v followed by COUNT(v) per k in two phases gives the same as COUNT(DISTINCT v) per k."""
    seed = f"distinct split, {number}"
    print(f"seed '{seed}'")
    distinct = next(one for one in AGGREGATES if one.sql == "count(DISTINCT v)")
    case = Case((distinct,), retracts=True, two_phase=False, is_global=False, hashed=strong_hash)
    at_once = Aggregate(spec_of([distinct]))
    rows_of = Aggregate(replace(at_once.spec, calls=(), group=_key_and_value))
    counted = AggregateSpec((AccumulatorCall("count", BIGINT, "value", BIGINT),), _arguments, _group, result)
    split = Aggregate(counted)
    stores = [{name: MemoryStore() for name in one.arrangements} for one in (at_once, rows_of, split)]
    views: tuple[Counter[Row], Counter[Row]] = Counter(), Counter()
    for now, batch in enumerate(exact(random_batches([INPUT], seed, batches=8), retracts=True)):
        changes = columns(batch, case).changes
        fold(views[0], at_once.process(Batch(changes), stores[0], now).rows)
        pairs = rows_of.process(Batch(_by(_key_and_value(changes.payload), changes)), stores[1], now).rows
        sums = add_up(counted, _by(_group(pairs.payload), pairs))
        fold(views[1], split.process(Batch(sums), stores[2], now).rows)
        assert views[0] == views[1]
