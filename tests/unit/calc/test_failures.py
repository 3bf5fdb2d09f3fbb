"""Rows on which an expression fails: the error that is raised, and the result if the query continues without them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from rowkind.avro.schema import Record, Type
from rowkind.operators.columns.batch import Emitted
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.errors import RowFailed
from rowkind.service.execute import calc, failures
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.execute.failures import LeftOut, OnFailure
from rowkind.service.physical.calc import Calc, OnError
from rowkind.service.physical.expression import Expression
from tests.unit.calc.rows import BY_CUSTOMER, LARGE, ORDERS, UA, UB, D, I, changes_of, columns, decoded, encoded, kinds

NEXT = Expression('"id" + CAST(1 AS BIGINT)', Type.of("BIGINT"), ("id",), "o.id + 1")
SURE = replace(NEXT, type=Type.of("BIGINT NOT NULL"))
POISON = 2**63 - 1


def plan(on_error: OnError, expression: Expression = NEXT, **more: object) -> Calc:
    """Return a calc that adds one to the ID, which fails on the largest ID."""
    record = Record("out", (*ORDERS.select(["amount"]).fields, replace(ORDERS.field("id"), name="next")))
    nullable = replace(record.fields[1], type=expression.type)
    output = replace(record, fields=(record.fields[0], nullable))
    return replace(Calc(ORDERS, output, (*columns("amount"), expression), on_error=on_error), **more)  # type: ignore[arg-type]


def run(of: Calc, rows: Rows, excused: Iterable[str] = ()) -> tuple[list[object], list[LeftOut], Changes]:
    """Run a calc; return the next IDs that are emitted, the failed rows that were reported, and the changes."""
    told: list[LeftOut] = []
    changes = failures.run(of, Emitted(rows), OnFailure("orders", told.append, frozenset(excused))).changes
    return [row["next"] for row in decoded(of.output, changes.payload)], told, changes


def test_the_first_row_on_which_the_query_fails_is_named() -> None:
    """The error has the operator's name, the expression, the reason, the offset and partition, and the next step."""
    rows = changes_of(*((I, {"id": POISON if number in (7, 9) else number}) for number in range(20)), first=100)

    with pytest.raises(ExpressionError) as caught:
        run(plan("fail"), rows)

    said = str(caught.value)
    assert said.startswith("orders: o.id + 1: Out of Range Error: Overflow in addition of INT64")
    assert ", on the row from offset 107 of partition 0. " in said
    assert said.endswith("; with `dead_letters` in the job, `rowkind skip JOB orders:0:107` skips this row.")


def test_of_several_expressions_the_one_that_failed_is_named() -> None:
    """The error names only the expression that failed, not the ones that are evaluated with it."""
    fine = replace(NEXT, sql='"id"', text="o.id")
    two = plan("fail", columns=(fine, NEXT), output=Record.of({"a": "BIGINT", "b": "BIGINT"}))
    with pytest.raises(ExpressionError, match=r"^orders: o\.id \+ 1: "):
        run(two, changes_of((I, {"id": POISON})))


def test_an_excused_record_is_left_out_and_others_are_not() -> None:
    """A skipped record is dropped without an error; other records that fail still raise one."""
    rows = changes_of((I, {"id": 1}), (I, {"id": POISON}), (I, {"id": 3}))

    found, (told,), _ = run(plan("fail"), rows, ["orders:0:1"])

    assert found == [2, 4]
    assert told.rows.seq.tolist() == [rows.seq[1]]
    with pytest.raises(ExpressionError, match="offset 1 "):
        run(plan("fail"), rows, ["orders:0:2", "payments:0:1"])


def test_what_fails_is_a_dead_letter_and_its_retraction_too() -> None:
    """If one half of an update fails, only that half becomes a dead letter and the other half is emitted alone."""
    rows = changes_of(
        (I, {"id": POISON}),
        (D, {"id": POISON}),
        (UB, {"id": 1}),
        (UA, {"id": POISON}),
        (UB, {"id": POISON}),
        (UA, {"id": 5}),
    )

    found, (told,), changes = run(plan("dead_letter"), rows)

    assert found == [2, 6]
    assert kinds(changes) == [D, I]
    assert told.rows.kind.tolist() == [I, D, UA, UB]
    assert all(reason.startswith("o.id + 1: ") for reason in told.reasons)


def test_null_stands_for_what_fails_where_it_may() -> None:
    """With `on_error: null` the value becomes NULL; in a NOT NULL column the row is dropped and reported instead."""
    rows = changes_of((I, {"id": 1}), (I, {"id": POISON}), (I, {"id": 3}))

    found, told, _ = run(plan("null"), rows)
    assert found == [2, None, 4]
    assert told == []
    found, (left_out,), _ = run(plan("null", SURE), rows)
    assert found == [2, 4]
    assert len(left_out.reasons) == 1


def test_a_predicate_that_fails_is_not_true() -> None:
    """A predicate that fails drops the row; only `on_error: dead_letter` also reports it."""
    fails = replace(LARGE, sql='CAST("id" AS INTEGER) > 0', columns=("id",), text="CAST(o.id AS INT) > 0")
    rows = changes_of((I, {"id": 1}), (I, {"id": POISON}))
    for on_error, letters in (("null", 0), ("dead_letter", 1)):
        of = plan(on_error, replace(NEXT, sql='"id"'), predicate=fails)  # type: ignore[arg-type]
        found, told, _ = run(of, rows)
        assert (found, sum(len(each.reasons) for each in told)) == ([1], letters)


def test_a_row_that_replaces_another_does_not_leave_that_one_behind() -> None:
    """If a replacement row fails, the row that it replaces is still deleted."""
    by_customer = plan("dead_letter", key=BY_CUSTOMER, replaced_by=("customer",))
    _, _, changes = run(by_customer, changes_of((UA, {"id": POISON, "customer": 3})))
    assert kinds(changes) == [UA, D]
    of_upsert = plan("dead_letter", key=BY_CUSTOMER, replaced_by=("customer",), upsert=True)
    _, _, changes = run(of_upsert, changes_of((UA, {"id": POISON, "customer": 3}), (UA, {"id": 1, "customer": 4})))
    assert kinds(changes) == [UA, D]


@pytest.mark.parametrize("seed", range(10))
def test_without_what_fails_the_result_is_that_of_the_others(seed: int) -> None:
    """If failing rows are dropped, the other rows give the result that they give alone."""
    rng = random.Random(seed)
    rows = changes_of(*((I, {"id": rng.choice((POISON, rng.randrange(9)))}) for _ in range(rng.choice((1, 40)))))
    good = np.array([row["id"] != POISON for row in decoded(ORDERS, rows.payload)])

    found, told, _ = run(plan("dead_letter", nets=rng.random() < 0.5), rows)

    alone = calc.run(plan("fail"), rows.filter(good))
    assert Counter(found) == Counter(row["next"] for row in decoded(plan("fail").output, alone.payload))
    assert sum(len(each.reasons) for each in told) == (~good).sum()


def test_a_pair_on_which_a_condition_fails_is_no_match() -> None:
    """A condition that fails is not a match with `dead_letter`, and otherwise raises with the number of the row."""
    rights = Record.of({"more": "BIGINT"})
    fails = Expression('"id" + "more" > 0', Type.of("BOOLEAN"), ("id", "more"), "o.id + r.more > 0")
    left = encoded(ORDERS, [{"id": each, "customer": None, "amount": None, "note": None} for each in (1, POISON, 3)])
    right = encoded(rights, [{"more": 1}] * 3)

    assert calc.condition(fails, ORDERS, rights, "dead_letter")(left, right).tolist() == [True, False, True]
    with pytest.raises(RowFailed, match=r"^o\.id \+ r\.more > 0: ") as raised:
        calc.condition(fails, ORDERS, rights)(left, right)
    assert raised.value.row == 1
