"""Calcs over whole columns, compared with fastavro and Python on one row at a time."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.order import comparable
from rowkind.avro.schema import Record, Type
from rowkind.operators.aggregate.partial import add_up
from rowkind.operators.columns.changes import Rows, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.execute import calc
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.physical.aggregation import AggregateCall, Aggregation
from rowkind.service.physical.calc import Calc, LocalTopK
from rowkind.service.physical.expression import Expression
from rowkind.service.physical.keys import Key, SubKeyPart
from tests.unit.calc.rows import (
    BY_CUSTOMER,
    LARGE,
    ORDERS,
    D,
    I,
    by,
    changes_of,
    columns,
    decoded,
    encoded,
    hand_on,
    kinds,
    random_rows,
)


def test_rows_that_are_only_handed_on_keep_their_bytes() -> None:
    """A calc without a predicate whose output equals its input passes the same payloads on."""
    rows = changes_of((I, {"id": 1}), (D, {"id": 2, "note": "x"}))

    changes = calc.run(hand_on(), rows)

    assert changes.payload.equals(rows.payload)
    assert kinds(changes) == [I, D]
    assert changes.seq.tolist() == rows.seq.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_a_projection_is_what_fastavro_and_python_make_of_it(seed: int) -> None:
    """Random projections with a filter and an expression give the rows that Python computes one by one."""
    rng = random.Random(seed)
    rows = random_rows(rng, rng.choice([0, 1, 50]))
    names = rng.sample(ORDERS.names, rng.randint(1, 4))
    twice = Expression('"amount" * 2', Type.of("DOUBLE"), ("amount",), "amount * 2")
    output = Record("out", (*ORDERS.select(names).fields, replace(ORDERS.field("amount"), name="twice")))
    filtered = rng.random() < 0.5
    plan = Calc(ORDERS, output, (*columns(*names), twice), BY_CUSTOMER, predicate=LARGE if filtered else None)

    changes = calc.run(plan, Rows(np.zeros(len(rows), np.int8), np.arange(len(rows)), encoded(ORDERS, rows)))

    passing = [row for row in rows if not filtered or (row["amount"] is not None and row["amount"] > 2)]
    assert decoded(output, changes.payload) == [
        {name: row[name] for name in names} | {"twice": None if row["amount"] is None else row["amount"] * 2}
        for row in passing
    ]
    keys = [None if row["customer"] is None else comparable(pa.array([row["customer"]]))[0].as_py() for row in passing]
    assert changes.key.to_pylist() == keys


def test_a_column_becomes_nullable_where_the_output_says_so() -> None:
    """A NOT NULL column in an all-nullable output is written with its union branch, as fastavro reads it."""
    changes = calc.run(hand_on(output=ORDERS.nullable()), changes_of((I, {"id": 7})))

    assert decoded(ORDERS.nullable(), changes.payload) == [{"id": 7, "customer": None, "amount": None, "note": None}]


def test_rows_with_a_null_key_are_dropped_where_they_cannot_match() -> None:
    """With `drop_null`, a row whose key is NULL is dropped."""
    rows = changes_of((I, {"id": 1, "customer": 5}), (I, {"id": 2}))

    changes = calc.run(hand_on(key=replace(BY_CUSTOMER, drop_null=True)), rows)

    assert [row["id"] for row in decoded(ORDERS, changes.payload)] == [1]
    assert changes.key.null_count == 0


def test_rows_with_a_null_key_are_spread_where_they_stay() -> None:
    """Without `drop_null` the key is null, and the hash is that of the sub-key or, without one, of the row."""
    rows = changes_of((I, {"id": 1}), (I, {"id": 2}), (I, {"id": 3, "customer": 1}))

    whole = calc.run(hand_on(key=BY_CUSTOMER), rows)
    by_id = calc.run(hand_on(key=BY_CUSTOMER, sub_key=by("id")), rows)

    assert [key is None for key in whole.key.to_pylist()] == [True, True, False]
    assert whole.hash.tolist()[:2] == hash64(whole.payload).tolist()[:2]
    assert by_id.hash.tolist()[:2] == hash64(by_id.sub_key).tolist()[:2]
    assert whole.hash[2] == hash64(whole.key)[2] == by_id.hash[2]


def test_null_is_a_key_like_any_other_where_it_equals_null() -> None:
    """A null-safe key part encodes NULL as bytes, the same for every NULL."""
    changes = calc.run(hand_on(key=Key(columns("customer"), (True,))), changes_of((I, {"id": 1}), (I, {"id": 2})))

    assert changes.key.null_count == 0
    assert len(set(changes.key.to_pylist())) == 1
    assert len(set(changes.hash.tolist())) == 1


def test_without_key_parts_all_rows_share_one_key() -> None:
    """All rows of a cross join have the empty key and one hash."""
    changes = calc.run(hand_on(), changes_of((I, {"id": 1}), (I, {"id": 2})))

    assert changes.key.to_pylist() == [b"", b""]
    assert changes.hash.tolist() == hash64(changes.key).tolist()


def test_the_key_of_a_topic_is_an_avro_record() -> None:
    """If the key has a record, the key bytes are those that fastavro writes for the key's columns."""
    record = ORDERS.select(["customer", "id"])
    key = Key(columns("customer", "id"), (True, True), record=record)
    rows = changes_of((I, {"id": 1, "customer": 5}), (D, {"id": 2}))

    changes = calc.run(hand_on(key=key), rows)

    assert decoded(record, changes.key) == [{"customer": 5, "id": 1}, {"customer": None, "id": 2}]


def test_an_expression_that_fails_on_a_row_says_which_one() -> None:
    """An overflow fails the batch, and the error quotes the expression as the user wrote it."""
    sum_ = Expression('"id" + CAST(1 AS BIGINT)', Type.of("BIGINT NOT NULL"), ("id",), "o.id + 1")
    plan = Calc(ORDERS, Record.of({"x": "BIGINT NOT NULL"}), (sum_,))

    with pytest.raises(ExpressionError, match=r"^o\.id \+ 1: Out of Range Error: Overflow in addition of INT64"):
        calc.run(plan, changes_of((I, {"id": 2**63 - 1})))


@pytest.mark.parametrize("seed", range(10))
def test_a_condition_is_true_only_where_sql_says_true(seed: int) -> None:
    """Over random pairs and after pickling, a condition that is NULL does not match."""
    rng = random.Random(seed)
    rights = Record.of({"limit": "DOUBLE", "name": "STRING"})
    expression = Expression('"amount" < "limit"', Type.of("BOOLEAN"), ("amount", "limit"), "amount < limit")
    left = random_rows(rng, 40)
    right = [{"limit": rng.choice([None, 1.0, 3.0]), "name": "x"} for _ in left]

    condition = pickle.loads(pickle.dumps(calc.condition(expression, ORDERS, rights)))
    matches = condition(encoded(ORDERS, left), encoded(rights, right))

    assert matches.tolist() == [
        a["amount"] is not None and b["limit"] is not None and a["amount"] < b["limit"]
        for a, b in zip(left, right, strict=True)
    ]
    assert condition(binary([]), binary([])).tolist() == []


def test_an_empty_batch_gives_an_empty_batch() -> None:
    """A batch without rows gives no changes, with any options of the calc."""
    plan = hand_on(predicate=LARGE, key=BY_CUSTOMER, sub_key=by("id"), nets=True)

    assert len(calc.run(plan, Rows.empty())) == 0
    assert len(calc.run(plan, changes_of((I, {"id": 1})))) == 0


def test_a_record_without_columns_still_counts_rows() -> None:
    """A calc that reads no column emits one empty payload per row."""
    plan = Calc(ORDERS, Record("none", ()), ())

    changes = calc.run(plan, changes_of((I, {"id": 1}), (I, {"id": 2})))

    assert changes.payload.to_pylist() == [b"", b""]


def test_constants_need_no_column() -> None:
    """An expression that reads no column gives its value once per row."""
    one = Expression("CAST(1 AS INTEGER)", Type.of("INT NOT NULL"), (), "1")
    plan = Calc(ORDERS, Record.of({"one": "INT NOT NULL"}), (one,))

    changes = calc.run(plan, changes_of((I, {"id": 1}), (I, {"id": 2})))

    assert decoded(plan.output, changes.payload) == [{"one": 1}, {"one": 1}]
    assert codec.read(plan.output, changes.payload).column("one").to_pylist() == [1, 1]


def test_a_sub_key_sorts_as_its_order_says() -> None:
    """For descending order with NULLs last, the sub-key bytes ascend from the greatest note to NULL."""
    rows = changes_of(*((I, {"id": i, "note": note}) for i, note in enumerate(["a", None, "", "b"])))

    changes = calc.run(hand_on(key=BY_CUSTOMER, sub_key=by("note", descending=True, nulls_first=False)), rows)

    sub_key = changes.sub_key.to_pylist()
    assert sorted(range(4), key=lambda i: sub_key[i]) == [3, 0, 2, 1]


def test_a_constant_key_is_the_key_of_every_row() -> None:
    """With a constant key, every row gets that key."""
    changes = calc.run(hand_on(key=Key(constant=b"not empty")), changes_of((I, {"id": 1}), (D, {"id": 2})))

    assert changes.key.to_pylist() == [b"not empty"] * 2
    assert changes.hash.tolist() == hash64(changes.key).tolist()


def test_a_partial_aggregate_adds_up_what_the_calc_leaves() -> None:
    """Rows that pass the filter are aggregated by key before they are sent."""
    count = AggregateCall("count", (), Type.of("BIGINT NOT NULL")).named("n", "COUNT(*)")
    output = Record.of({"customer": "INT", "n": "BIGINT NOT NULL"})
    counted = Aggregation(ORDERS, ("customer",), (count,), output, retracts=True, is_global=False, ttl_ms=None)
    by_group = Key(columns("customer"), (True,))
    plain = hand_on(predicate=LARGE, key=by_group, nets=True)
    rows = changes_of(*((I, {"id": i, "customer": i % 2, "amount": i * 1.0}) for i in range(40)))

    summed = calc.run(replace(plain, partial=counted), rows)

    assert kinds(summed) == [I, I]
    alone = calc.run(plain, rows)
    assert summed.payload.to_pylist() == add_up(spec_of(counted), alone).payload.to_pylist()


def test_contenders_are_all_that_leaves_a_calc_before_a_rank() -> None:
    """Local top-k: of rows in few partitions, only rows that can reach the range are sent."""
    best = LocalTopK(Ranking("row_number", 1, 2))
    by_amount = SubKeyPart(*columns("amount"), descending=True)
    plain = hand_on(key=Key(columns("customer"), (True,)), sub_key=(by_amount,), nets=True)
    rows = changes_of(*((I, {"id": i, "customer": i % 2, "amount": i * 1.0}) for i in range(40)))

    sent = calc.run(replace(plain, partial=best), rows)

    assert kinds(sent) == [I] * 4
    assert sent.payload.to_pylist() == rows.payload.to_pylist()[36:40]
