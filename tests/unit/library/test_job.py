"""`rowkind.Job`: a job file used from a Python program."""

from __future__ import annotations

import json
from contextlib import chdir
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import rowkind
from rowkind.service.cli import main
from rowkind.service.job.errors import JobError
from rowkind.service.library.job import SinkError
from rowkind.service.plan.errors import PlanError
from rowkind.service.query.trial import InputError

EXAMPLES = Path(__file__).parents[3] / "examples"
ORDERS = rowkind.Job(EXAMPLES / "orders-payments" / "job.yaml", {})
ORDER = {"order_id": 1, "customer": "Ada", "amount": Decimal("10.00"), "status": "new"}
PAYMENT = {"payment_id": 7, "order_id": 1, "paid": "4.00", "method": "card"}
CHANGES = [
    {"table": "orders", "op": "+I", "row": ORDER},
    {"table": "payments", "op": "+I", "row": PAYMENT},
    {"table": "payments", "op": "-D", "row": PAYMENT},
]


def test_a_job_says_what_it_is() -> None:
    """A job has a name, tables and sinks, and its repr has no path."""
    assert (ORDERS.name, ORDERS.tables) == ("orders-payments", ("orders", "payments"))
    assert repr(ORDERS) == "<Job orders-payments: orders, payments -> order_payments, paid_orders>"


def test_a_job_is_a_picture_in_a_notebook() -> None:
    """The picture has the tables, queries and sinks. If a query cannot be planned, the problem is below it."""
    drawn = ORDERS._repr_html_()
    assert drawn.startswith("<svg")
    assert all(f">{name}</text>" in drawn for name in ("orders", "payments", "main", "order_payments", "paid_orders"))
    assert drawn.count("stroke-width") == 4
    text = ORDERS.file.read_text().replace("o.amount - p.paid AS remaining", "RAND() AS remaining")
    assert "RAND is not supported" in rowkind.Job.from_yaml(text, {})._repr_html_()


def test_a_job_can_be_a_text() -> None:
    """The text of a job file is a job, and its errors name the line in the text."""
    assert rowkind.Job.from_yaml(ORDERS.file.read_text(), {}).sinks == ORDERS.sinks
    with pytest.raises(JobError, match=r"<yaml>:1: tables is missing"):
        rowkind.Job.from_yaml("job: shop\n")


def test_a_notebook_shows_only_the_message_of_an_error() -> None:
    """IPython takes the message from the error, without a stack trace through Rowkind's code."""
    with pytest.raises(SinkError) as caught:
        ORDERS.explain("nope")
    assert caught.value._render_traceback_() == [f"SinkError: {caught.value}"]


def test_what_is_wrong_with_a_file_is_raised(tmp_path: Path) -> None:
    """An error in the file is raised with its line, as a JobError, which is a RowkindError."""
    file = tmp_path / "job.yaml"
    file.write_text("job: shop\n")
    with pytest.raises(JobError, match="tables is missing") as caught:
        rowkind.Job(file)
    assert isinstance(caught.value, rowkind.RowkindError)


def test_what_cannot_be_kept_up_to_date_is_raised_by_check(tmp_path: Path) -> None:
    """`check` raises an error for a query that cannot be planned, and returns without one for a valid job."""
    ORDERS.check()
    file = tmp_path / "job.yaml"
    text = ORDERS.file.read_text()
    file.write_text(text.replace("o.amount - p.paid AS remaining", "RAND() AS remaining"))
    with pytest.raises(rowkind.RowkindError, match="RAND"):
        rowkind.Job(file, {}).check()


def test_check_tells_of_every_query_that_is_refused(tmp_path: Path) -> None:
    """Every refused query is reported once with its place, and an error in a view once for all its sinks."""
    queries = {
        "a": "SELECT frob(x) AS y FROM t",
        "b": "SELECT x FROM t",
        "c": "SELECT y FROM t",
        "d": "SELECT * FROM v",
        "e": "SELECT * FROM v",
    }
    file = tmp_path / "job.yaml"
    tables = {"t": {"mode": "append", "columns": {"x": "INT"}}}
    sinks = {name: {"mode": "append", "sql": sql} for name, sql in queries.items()}
    file.write_text(json.dumps({"job": "j", "tables": tables, "views": {"v": "SELECT z FROM t"}, "sinks": sinks}))
    with pytest.raises(PlanError) as refused:
        rowkind.Job(file, {}).check()
    told = [line.partition(": ")[2].partition(",")[0] for line in str(refused.value).splitlines() if str(file) in line]
    assert told == [
        "sinks.a.sql: the function FROB is not supported",
        "sinks.c.sql: t has no column y; available: x",
        "views.v: t has no column z; available: x",
    ]
    assert str(copy(refused.value)) == str(refused.value)


def test_a_plan_is_text_a_document_and_a_page() -> None:
    """A plan is available as text, as a document, as Mermaid and as HTML, which a notebook shows in a frame."""
    plan = ORDERS.explain("order_payments")
    assert "LEFT JOIN ON o.order_id = p.order_id" in str(plan)
    assert plan.document["job"] == "orders-payments"
    assert plan.mermaid.startswith("flowchart")
    assert plan.html.startswith("<!doctype html>")
    assert plan._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html')
    assert "paid_orders" in str(ORDERS.explain())


def test_changes_are_tried_and_come_back_as_arrow() -> None:
    """`try_` returns one row per change of the result, with the batch number, the row kind and the row's columns."""
    result = ORDERS.try_(CHANGES, "order_payments")
    assert result.columns[:3] == ("batch", "op", "order_id")
    assert result.to_arrow().schema.field("amount").type == pa.decimal128(10, 2)
    told = [(each["batch"], each["op"], each["payment_id"], each["paid"]) for each in result]
    assert told == [
        (0, "+I", None, None),
        (1, "-D", None, None),
        (1, "+I", 7, Decimal("4.00")),
        (2, "-D", 7, Decimal("4.00")),
        (2, "+I", None, None),
    ]


def test_the_rows_that_are_left_come_back_as_arrow() -> None:
    """`fold` returns the result's rows and columns."""
    left = ORDERS.try_(CHANGES[:2], "paid_orders").fold()
    assert left.columns == ("payment_id", "order_id", "customer", "paid", "remaining")
    assert [each["remaining"] for each in left] == [Decimal("6.00")]
    assert left.fold() is left


def test_no_changes_give_a_table_without_rows() -> None:
    """Without changes, the table has the same columns and no rows."""
    nothing, some = ORDERS.try_([], "order_payments"), ORDERS.try_(CHANGES, "order_payments")
    assert not len(nothing)
    assert nothing.to_arrow().schema == some.to_arrow().schema


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sink", ["open_orders", "top_products"])
def test_a_file_of_changes_gives_what_the_command_prints(sink: str) -> None:
    """`Job.try_` with a file gives the rows of `rowkind try --fold` in the same order."""
    shop = EXAMPLES / "shop"
    with chdir(shop):
        done = CliRunner().invoke(main, ["try", "job.yaml", "--changes", "changes.jsonl", "--sink", sink, "--fold"])
    said = [json.loads(line)["row"] for line in done.stdout.splitlines()]
    left = rowkind.Job(shop / "job.yaml", {}).try_(shop / "changes.jsonl", sink).fold().to_arrow()
    assert said
    assert [list(row) for row in said] == [left.schema.names] * len(left)
    assert [row[left.schema.names[0]] for row in said] == left.column(0).to_pylist()


def test_a_change_that_is_none_is_refused_by_its_number() -> None:
    """The error for an invalid change names the number of the change and the problem."""
    with pytest.raises(InputError, match=r"changes:2: amount: .*"):
        ORDERS.try_([CHANGES[0], {"table": "orders", "op": "+I", "row": ORDER | {"amount": "much"}}], "order_payments")
    with pytest.raises(InputError, match="expected"):
        ORDERS.try_([{"orders": ORDER}], "order_payments")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([1], r"changes:1: expected \{\"table\""),
        (1, r"1 is neither a file of changes nor a list of changes: expected"),
        ("nope.jsonl", "the file of changes nope.jsonl cannot be read: No such file"),
        (EXAMPLES, "cannot be read: Is a directory"),
    ],
)
def test_what_are_no_changes_is_refused(changes: Any, problem: str) -> None:
    """Input that is not a list of changes or a readable file is refused with an InputError."""
    with pytest.raises(InputError, match=problem):
        ORDERS.try_(changes, "order_payments")


def test_a_float_is_the_decimal_that_a_person_wrote() -> None:
    """A float counts as its shortest decimal; a computed float with more digits than the column is refused."""

    def amount(value: Any) -> Any:
        table = ORDERS.try_([{"table": "orders", "op": "+I", "row": ORDER | {"amount": value}}], "order_payments")
        return next(iter(table))["amount"]

    assert amount(12.3) == amount(np.float64(12.3)) == Decimal("12.30")
    assert amount(1e3) == Decimal("1000.00")
    for value in (0.1 + 0.2, float("nan"), 1e30):
        with pytest.raises(
            InputError, match=r"is not DECIMAL\(10,2\): round it, or pass it as text or decimal.Decimal"
        ):
            amount(value)
    with pytest.raises(InputError, match=r"amount: 1\.234 is not DECIMAL\(10,2\)$"):
        amount(Decimal("1.234"))


def test_numpys_scalars_are_values(tmp_path: Path) -> None:
    """NumPy scalars are accepted, including times; a float that is not whole is refused for a BIGINT."""
    columns = {"id": "BIGINT NOT NULL", "ok": "BOOLEAN", "x": "DOUBLE", "s": "STRING", "at": "TIMESTAMP"}
    file = tmp_path / "job.yaml"
    table, sink = {"mode": "append", "columns": columns}, {"mode": "append", "sql": "SELECT * FROM t"}
    file.write_text(json.dumps({"job": "j", "tables": {"t": table}, "sinks": {"s": sink}}))
    job = rowkind.Job(file, {})
    at = np.datetime64("2026-01-31T12:00:00.5", "ns")
    row = {"id": np.int64(1), "ok": np.bool_(True), "x": np.float32(0.5), "s": np.str_("a"), "at": at}
    (made,) = job.try_([{"table": "t", "op": "+I", "row": row}]).fold()
    assert made == {"id": 1, "ok": True, "x": 0.5, "s": "a", "at": datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)}
    with pytest.raises(InputError, match=r"id: 1\.5 is not BIGINT"):
        job.try_([{"table": "t", "op": "+I", "row": {"id": np.float64(1.5)}}])


def test_the_sink_has_to_be_one_of_the_job() -> None:
    """A job with several sinks needs the name of one, and a wrong name gets a suggestion."""
    with pytest.raises(SinkError, match="several sinks"):
        ORDERS.try_(CHANGES)
    with pytest.raises(SinkError, match="did you mean"):
        ORDERS.explain("order_payment")


def test_a_name_that_is_not_there_is_told() -> None:
    """An unknown attribute of the module raises AttributeError."""
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        rowkind.Jobs  # noqa: B018 - the test is that the attribute raises
