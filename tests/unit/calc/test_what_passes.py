"""Which changes a calc passes on: filters, halves of updates, rows that replace each other, rows that cancel."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rowkind.avro.schema import Record, Type
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.service.execute import calc, failures
from rowkind.service.execute.failures import OnFailure
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.expression import Expression
from tests.unit.calc.rows import (
    BY_CUSTOMER,
    LARGE,
    ORDERS,
    UA,
    UB,
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


def test_a_filter_keeps_what_is_true() -> None:
    """A filter drops rows for which its predicate is FALSE or NULL."""
    rows = changes_of((I, {"id": 1, "amount": 3.0}), (I, {"id": 2, "amount": 1.0}), (I, {"id": 3}))

    changes = calc.run(hand_on(predicate=LARGE), rows)

    assert [row["id"] for row in decoded(ORDERS, changes.payload)] == [1]


def test_an_update_whose_new_row_fails_the_filter_becomes_a_delete() -> None:
    """If the new row fails the filter, -U is emitted alone as -D."""
    rows = changes_of((UB, {"id": 1, "amount": 3.0}), (UA, {"id": 1, "amount": 1.0}))

    assert kinds(calc.run(hand_on(predicate=LARGE, nets=True), rows)) == [D]
    assert kinds(calc.run(hand_on(predicate=LARGE), rows)) == [D]


def test_an_update_whose_old_row_fails_the_filter_becomes_an_insert() -> None:
    """If the old row fails the filter, +U is emitted alone as +I."""
    rows = changes_of((UB, {"id": 1, "amount": 1.0}), (UA, {"id": 1, "amount": 3.0}))

    assert kinds(calc.run(hand_on(predicate=LARGE), rows)) == [I]


def test_an_update_under_one_key_stays_an_update() -> None:
    """-U and +U that both pass and have the same key stay a pair."""
    rows = changes_of((UB, {"id": 1, "customer": 5}), (UA, {"id": 1, "customer": 5, "note": "x"}))

    assert kinds(calc.run(hand_on(key=BY_CUSTOMER), rows)) == [UB, UA]


def test_an_update_that_changes_the_key_becomes_a_delete_and_an_insert() -> None:
    """An update becomes -D and +I if its key or its sub-key changes, even if one of the keys is NULL."""
    moved = changes_of((UB, {"id": 1, "customer": 5}), (UA, {"id": 1, "customer": 6}))
    nulled = changes_of((UB, {"id": 1, "customer": 5}), (UA, {"id": 1}))
    renamed = changes_of((UB, {"id": 1, "customer": 5}), (UA, {"id": 2, "customer": 5}))

    assert kinds(calc.run(hand_on(key=BY_CUSTOMER), moved)) == [D, I]
    assert kinds(calc.run(hand_on(key=BY_CUSTOMER), nulled)) == [D, I]
    assert kinds(calc.run(hand_on(key=BY_CUSTOMER, sub_key=by("id")), renamed)) == [D, I]


def test_a_lone_half_of_an_update_keeps_its_kind() -> None:
    """-U and +U that are not consecutive, or come from different partitions, are not a pair."""
    apart = changes_of((UA, {"id": 1, "customer": 5}), (UB, {"id": 1, "customer": 6}))
    pair = changes_of((UB, {"id": 1, "customer": 5}), (UA, {"id": 1, "customer": 6}))
    elsewhere = replace(pair, seq=np.array([(1 << 16) | 0, (1 << 16) | 3]))

    assert kinds(calc.run(hand_on(key=BY_CUSTOMER), apart)) == [UA, UB]
    assert kinds(calc.run(hand_on(key=BY_CUSTOMER), elsewhere)) == [UB, UA]


def test_in_an_upsert_stream_a_row_that_fails_the_filter_deletes_its_key() -> None:
    """In an upsert stream, a row that fails the filter is emitted as -D, and deletes always pass (FLINK-38579)."""
    rows = changes_of((I, {"id": 1, "amount": 3.0}), (UA, {"id": 1, "amount": 1.0}), (D, {"id": 1}))

    changes = calc.run(hand_on(predicate=LARGE, upsert=True, replaced_by=("id",), sub_key=by("id")), rows)

    assert kinds(changes) == [I, D, D]


def test_a_bare_update_that_fails_the_filter_takes_its_predecessor_along() -> None:
    """A +U without -U that fails the filter is emitted with its own delete, because the old row may have passed."""
    rows = changes_of((UA, {"id": 1, "amount": 1.0}), (I, {"id": 2, "amount": 1.0}), (UA, {"id": 3, "amount": 5.0}))

    changes = calc.run(hand_on(predicate=LARGE, replaced_by=("id",), sub_key=by("id")), rows)

    changes = changes.take(np.argsort(changes.seq))
    assert kinds(changes) == [UA, D, UA]
    assert changes.seq.tolist() == [0, 1, 2 << 16]
    assert [row["id"] for row in decoded(ORDERS, changes.payload)] == [1, 1, 3]


def test_a_bare_update_behind_the_old_half_of_another_key_takes_its_predecessor_along() -> None:
    """A -U directly before a +U of another key is not its old half, so the +U is emitted with its own delete."""
    rows = changes_of((UB, {"id": 1, "amount": 5.0}), (UA, {"id": 2, "amount": 1.0}), (UA, {"id": 1, "amount": 6.0}))

    changes = calc.run(hand_on(predicate=LARGE, replaced_by=("id",), sub_key=by("id")), rows)

    changes = changes.take(np.argsort(changes.seq))
    assert [row["id"] for row in decoded(ORDERS, changes.payload)] == [1, 2, 2, 1]
    assert changes.weight.tolist() == [-1, 1, -1, 1]


def test_of_a_row_known_by_its_key_alone_nothing_else_is_computed() -> None:
    """For deletes, and for rows that fail the filter, expressions over columns outside the key are not evaluated."""
    inverse = Expression(
        "CASE WHEN amount = 0 THEN CAST(error('0') AS BIGINT) ELSE 7 END",
        Type.of("BIGINT NOT NULL"),
        ("amount",),
        "7 unless 0",
    )
    given = hand_on(predicate=LARGE, upsert=True, replaced_by=("id",), sub_key=by("id"))
    output = Record.of({"id": "BIGINT NOT NULL", "inverse": "BIGINT NOT NULL"})
    rows = changes_of((I, {"id": 1, "amount": 4.0}), (UA, {"id": 2, "amount": 0.0}), (D, {"id": 3}))

    changes = calc.run(replace(given, columns=(*columns("id"), inverse), output=output), rows)

    assert decoded(output, changes.payload) == [
        {"id": each, "inverse": value} for each, value in ((1, 7), (2, 0), (3, 0))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_equal_rows_of_opposite_sign_cancel(seed: int) -> None:
    """The emitted rows equal the input as a multiset with signs, and no row is emitted with both signs."""
    rng = random.Random(seed)
    rows = random_rows(rng, 60)
    kind = np.array([rng.choice([I, UB, UA, D]) for _ in rows], np.int8)
    output = ORDERS.select(["customer", "note"])
    plan = Calc(ORDERS, output, columns("customer", "note"), BY_CUSTOMER, sub_key=by("note"), nets=True)

    changes = calc.run(plan, Rows(kind, np.array(rng.sample(range(1000), 60)), encoded(ORDERS, rows)))

    wanted: Counter[tuple[Any, ...]] = Counter()
    for row, each in zip(rows, kind.tolist(), strict=True):
        wanted[row["customer"], row["note"]] += 1 if each in (I, UA) else -1
    signs: dict[tuple[Any, ...], set[int]] = {}
    found: Counter[tuple[Any, ...]] = Counter()
    for row, weight in zip(decoded(output, changes.payload), changes.weight.tolist(), strict=True):
        found[row["customer"], row["note"]] += weight
        signs.setdefault((row["customer"], row["note"]), set()).add(weight)
    assert {row: count for row, count in wanted.items() if count} == dict(found)
    assert all(len(each) == 1 for each in signs.values())


def test_of_equal_rows_the_latest_stay() -> None:
    """Netting three insertions against one deletion leaves the two insertions with the greatest seqs."""
    rows = changes_of((I, {"id": 1}), (I, {"id": 1}), (D, {"id": 1}), (I, {"id": 1}))

    changes = calc.run(hand_on(nets=True), rows)

    assert changes.seq.tolist() == [1 << 16, 3 << 16]


def test_rows_that_cancel_are_refreshes_where_somebody_waits_for_them() -> None:
    """An update whose halves become equal is emitted as one refresh; an inserted or deleted row is not."""
    rows = changes_of(
        (UB, {"id": 1, "amount": 1.0}),
        (UA, {"id": 1, "amount": 2.0}),
        (I, {"id": 2}),
    )
    output = ORDERS.select(["id"])
    plan = Calc(ORDERS, output, columns("id"), nets=True, refreshes=True)

    given = Emitted(rows, changes_of((I, {"id": 3})))

    batch = failures.run(plan, given, OnFailure("orders"))

    def ids(changes: Changes) -> list[int]:
        return [row["id"] for row in decoded(output, changes.payload)]

    assert (kinds(batch.changes), ids(batch.changes)) == ([I], [2])
    assert (kinds(batch.refreshes), sorted(ids(batch.refreshes))) == ([I, I], [1, 3])
    assert len(failures.run(replace(plan, refreshes=False), given, OnFailure("orders"))) == 1


def test_a_filter_drops_refreshes_of_rows_that_it_drops() -> None:
    """Refreshes of rows that fail the filter are dropped."""
    rows = changes_of((I, {"id": 1, "amount": 3.0}), (I, {"id": 2, "amount": 1.0}))

    changes = calc.refreshed(hand_on(predicate=LARGE, nets=True, refreshes=True), rows)

    assert [row["id"] for row in decoded(ORDERS, changes.payload)] == [1]
    assert kinds(changes) == [I]
