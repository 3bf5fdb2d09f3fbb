"""`rowkind try`: a job file and changes in, JSON lines out, messages on standard error, an exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main

JOB = """
job: shop
tables:
  orders:
    topic: orders
    mode: retract
    columns: {order_id: BIGINT NOT NULL, amount: "DECIMAL(10,2)", placed: TIMESTAMP}
    primary_key: [order_id]
  payments:
    topic: payments
    mode: retract
    columns: {payment_id: BIGINT NOT NULL, order_id: BIGINT, paid: "DECIMAL(10,2)"}
    primary_key: [payment_id]
  customers:
    mode: upsert
    columns: {id: INT NOT NULL, name: STRING}
    primary_key: [id]
sinks:
  paid:
    topic: paid
    mode: retract
    key: [order_id, payment_id]
    sql: SELECT o.order_id, p.payment_id, o.amount, p.paid FROM orders o LEFT JOIN payments p ON o.order_id = p.order_id
  dates: {mode: upsert, key: [order_id], sql: "SELECT order_id, placed FROM orders"}
  names: {mode: upsert, key: [id], sql: "SELECT id, name FROM customers WHERE name <> 'x'"}
"""

ORDER_1 = {"order_id": 1, "amount": "10.00"}
ORDER_2 = {"order_id": 2, "amount": "20.00"}
PAYMENT = {"payment_id": 7, "order_id": 1, "paid": "10.00"}
CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("orders", "+I", ORDER_1),
    ("orders", "+I", ORDER_2),
    ("payments", "+I", PAYMENT),
    ("payments", "-U", PAYMENT),
    ("payments", "+U", PAYMENT | {"order_id": 2}),
    ("orders", "-D", ORDER_1),
]


@dataclass(frozen=True)
class Tried:
    """The output and exit code of a run."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[Any]:
        """The lines of standard output, parsed as JSON."""
        return [json.loads(line) for line in self.output.splitlines()]


Changes = list[Any] | str
"""Changes as tuples, or the text of the file."""


def tried(folder: Path, changes: Changes, *options: str, job: str = JOB) -> Tried:
    """Run `rowkind try` in this process; `tests/system/test_try.py` runs it as a separate process."""
    _write(folder, changes, job)
    with chdir(folder):
        done = CliRunner().invoke(main, ["try", "job.yaml", "--changes", "changes.jsonl", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Tried(done.exit_code, done.stdout, done.stderr)


def _write(folder: Path, changes: Changes, job: str) -> None:
    if not isinstance(changes, str):
        changes = "\n".join(json.dumps({"table": table, "op": op, "row": row}) for table, op, row in changes)
    (folder / "job.yaml").write_text(job)
    (folder / "changes.jsonl").write_text(changes)


def row(order: int, payment: int | None, amount: str, paid: str | None) -> dict[str, Any]:
    """Return a row of the sink `paid`."""
    return {"order_id": order, "payment_id": payment, "amount": amount, "paid": paid}


def test_every_change_of_the_result_is_a_line_with_its_batch(tmp_path: Path) -> None:
    """With one change per batch, each change of the result is a line with its batch, null-padded rows included."""
    done = tried(tmp_path, CHANGES, "--sink", "paid")

    assert (done.code, done.errors) == (0, "")
    assert _bag((line["batch"], line["op"], line["row"]) for line in done.lines) == _bag(
        [
            (0, "+I", row(1, None, "10.00", None)),
            (1, "+I", row(2, None, "20.00", None)),
            (2, "-D", row(1, None, "10.00", None)),
            (2, "+I", row(1, 7, "10.00", "10.00")),
            (3, "-D", row(1, 7, "10.00", "10.00")),
            (3, "+I", row(1, None, "10.00", None)),
            (4, "-D", row(2, None, "20.00", None)),
            (4, "+I", row(2, 7, "20.00", "10.00")),
            (5, "-D", row(1, None, "10.00", None)),
        ]
    )
    assert [line["batch"] for line in done.lines] == sorted(line["batch"] for line in done.lines)


def _bag(lines: Iterable[Any]) -> Counter[str]:
    return Counter(map(str, lines))


@pytest.mark.parametrize("batch_rows", ["1", "2", "4", "100"])
def test_the_fold_is_the_same_for_every_size_of_batches(tmp_path: Path, batch_rows: str) -> None:
    """`--fold` prints the rows of the final result in order, for any batch size."""
    done = tried(tmp_path, CHANGES, "--sink", "paid", "--fold", "--batch-rows", batch_rows)

    assert done.code == 0
    assert done.lines == [{"row": row(2, 7, "20.00", "10.00")}]


def test_an_update_in_one_batch_is_a_pair(tmp_path: Path) -> None:
    """An update within a batch is printed as adjacent -U and +U with the full old row."""
    changes = [
        ("orders", "+I", ORDER_1),
        ("orders", "+I", ORDER_2),
        ("orders", "-U", ORDER_1),
        ("orders", "+U", ORDER_1 | {"amount": "11.00"}),
    ]

    done = tried(tmp_path, changes, "--sink", "paid", "--batch-rows", "2")

    assert [(line["op"], line["row"]["amount"]) for line in done.lines if line["batch"] == 1] == [
        ("-U", "10.00"),
        ("+U", "11.00"),
    ]


def test_timestamps_are_iso_or_milliseconds_and_printed_in_utc(tmp_path: Path) -> None:
    """Times with a zone, without one and as numbers are printed in UTC, with fractions only if needed."""
    times = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5", "2026-01-31T13:00:00+01:00", 1769860800123, None]
    changes = [("orders", "+I", {"order_id": n, "placed": time}) for n, time in enumerate(times)]

    done = tried(tmp_path, changes, "--sink", "dates", "--fold")

    assert [line["row"]["placed"] for line in done.lines] == [
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.500Z",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.123Z",
        None,
    ]


def test_an_upsert_result_has_no_old_rows(tmp_path: Path) -> None:
    """An upsert result has no old rows; a row that fails the filter is deleted, and a delete needs only its key."""
    changes = [
        ("customers", "+I", {"id": 1, "name": "a"}),
        ("customers", "+U", {"id": 1, "name": "b"}),
        ("customers", "+U", {"id": 2, "name": "c"}),
        ("customers", "+U", {"id": 2, "name": "x"}),
        ("customers", "-D", {"id": 1}),
        ("customers", "+I", {"id": 3, "name": "d"}),
    ]

    every = tried(tmp_path, changes, "--sink", "names")
    folded = tried(tmp_path, changes, "--sink", "names", "--fold")

    assert {line["op"] for line in every.lines} <= {"+I", "+U", "-D"}
    assert [(line["batch"], line["row"]["id"]) for line in every.lines] == [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 1),
        (5, 3),
    ]
    assert folded.lines == [{"row": {"id": 3, "name": "d"}}]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "the line is not JSON, column 2: Expecting property name enclosed in double quotes"),
        ("[]", 'expected {"table": "…", "op": "+I", "row": {…}}'),
        ('{"table": "orders", "op": "+I", "row": {}, "ts": 1}', "unknown key 'ts': expected"),
        ('{"table": "order", "op": "+I", "row": {}}', "there is no table 'order'; did you mean orders?"),
        (
            '{"table": "orders", "op": "+X", "row": {}}',
            "op '+X' is not allowed in a table with mode retract: expected +I or -U or +U or -D",
        ),
        (
            '{"table": "orders", "row": {}}',
            "op None is not allowed in a table with mode retract: expected +I or -U or +U or -D",
        ),
        (
            '{"table": "customers", "op": "-U", "row": {"id": 1}}',
            "op '-U' is not allowed in a table with mode upsert: expected +I or +U or -D",
        ),
        ('{"table": "orders", "op": "+I", "row": {}}', "order_id is BIGINT NOT NULL, but it is missing or null"),
        (
            '{"table": "orders", "op": "+I", "row": {"order_id": 1, "x": 1}}',
            "there is no column 'x'; the columns are order_id, amount, placed",
        ),
        ('{"table": "orders", "op": "+I", "row": {"order_id": "1"}}', 'order_id: "1" is not BIGINT'),
        (
            '{"table": "orders", "op": "+I", "row": {"order_id": 1, "amount": "1.234"}}',
            'amount: "1.234" is not DECIMAL(10,2)',
        ),
        (
            '{"table": "orders", "op": "+I", "row": {"order_id": 1, "placed": "noon"}}',
            'placed: "noon" is not a time such as 2026-01-31T12:00:00Z, or ms since the epoch',
        ),
        (
            '{"table": "orders", "op": "+I", "row": {"order_id": 9223372036854775808}}',
            "order_id: 9223372036854775808 is out of range for BIGINT",
        ),
    ],
)
def test_a_bad_line_is_named_and_ends_the_run_with_2(tmp_path: Path, line: str, problem: str) -> None:
    """An invalid line is reported with file, line and problem, and nothing is written to standard output."""
    good = json.dumps({"table": "orders", "op": "+I", "row": ORDER_1})

    done = tried(tmp_path, f"{good}\n\n{line}\n", "--sink", "paid")

    assert (done.code, done.output) == (2, "")
    assert done.errors.startswith(f"rowkind: changes.jsonl:3: {problem}")


def test_a_refused_query_ends_with_2_and_points_into_the_sql(tmp_path: Path) -> None:
    """The error has the file, line, sink and position, with a caret under the place in the SQL."""
    job = JOB.replace("SELECT id, name FROM customers", "SELECT id, nam FROM customers")

    done = tried(tmp_path, CHANGES, "--sink", "names", job=job)

    assert (done.code, done.output) == (2, "")
    assert done.errors == (
        "rowkind: job.yaml:25: sinks.names.sql: customers has no column nam; did you mean name?, line 1, column 12\n"
        "    SELECT id, nam FROM customers WHERE name <> 'x'\n"
        "               ^^^\n"
    )


def test_a_refused_job_ends_with_2(tmp_path: Path) -> None:
    """A refused job file has exit code 2 and the message of `rowkind check`."""
    done = tried(tmp_path, CHANGES, job=JOB.replace("sinks:", "sink:"))

    assert done.code == 2
    assert "job.yaml:18: sink: unknown setting; did you mean sinks?" in done.errors


def test_of_several_sinks_one_has_to_be_chosen(tmp_path: Path) -> None:
    """A job with several sinks needs `--sink` with one of their names."""
    done = tried(tmp_path, CHANGES)
    other = tried(tmp_path, CHANGES, "--sink", "pade")

    assert (done.code, other.code) == (2, 2)
    assert done.errors == "rowkind: job.yaml has several sinks: choose one with --sink (paid, dates, names)\n"
    assert other.errors == "rowkind: job.yaml:18: sinks: there is no sink 'pade'; did you mean paid?\n"


def test_a_retraction_that_finds_nothing_is_told_on_standard_error(tmp_path: Path) -> None:
    """An unmatched retraction is reported on standard error; with `unmatched: fail` the exit code is 1."""
    changes = [("orders", "-D", ORDER_1), ("orders", "+I", ORDER_2)]

    ignored = tried(tmp_path, changes, "--sink", "paid")
    failed = tried(tmp_path, changes, "--sink", "paid", job=JOB.replace("job: shop", "job: shop\nunmatched: fail"))

    assert ignored.code == 0
    assert len(ignored.lines) == 1
    assert "1 retraction found no row to retract" in ignored.errors
    assert failed.code == 1
    assert "unmatched: fail" in failed.errors


def test_a_table_that_the_query_does_not_read_is_told(tmp_path: Path) -> None:
    """Changes of a table that the query does not read are ignored with a message."""
    done = tried(tmp_path, CHANGES, "--sink", "dates", "--fold")

    assert done.code == 0
    assert len(done.lines) == 1
    assert done.errors == "rowkind: the query of sink dates does not read table payments\n"


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    """Without changes nothing is printed."""
    assert tried(tmp_path, "", "--sink", "paid") == Tried(0, "", "")
    assert tried(tmp_path, "\n", "--sink", "paid", "--fold") == Tried(0, "", "")


def test_an_empty_file_gives_what_is_said_of_no_rows(tmp_path: Path) -> None:
    """Without changes, a global aggregate still prints its row."""
    job = JOB + '  counted: {mode: retract, sql: "SELECT COUNT(*) AS n, SUM(order_id) AS s FROM orders"}\n'

    every = tried(tmp_path, "", "--sink", "counted", job=job)
    folded = tried(tmp_path, "", "--sink", "counted", "--fold", job=job)

    assert every.lines == [{"batch": 0, "op": "+I", "row": {"n": 0, "s": None}}]
    assert folded.lines == [{"row": {"n": 0, "s": None}}]


def test_the_end_of_the_file_closes_windows_of_the_time_of_processing(tmp_path: Path) -> None:
    """The end of the file closes processing-time windows and emits waiting OVER rows, unless `--open` is given."""
    job = """
job: clicks
tables:
  clicks: {mode: append, columns: {k: INT NOT NULL}}
sinks:
  windows:
    mode: append
    sql: SELECT COUNT(*) AS n FROM clicks GROUP BY TUMBLE(PROCTIME(), INTERVAL '1' MINUTE)
  sums: {mode: append, sql: SELECT SUM(k) OVER (ORDER BY PROCTIME() ROWS UNBOUNDED PRECEDING) AS s FROM clicks}
"""
    changes = "\n".join(
        ['{"clock": "2026-01-01T00:00:00Z"}']
        + [f'{{"table": "clicks", "op": "+I", "row": {{"k": {k}}}}}' for k in (1, 2)]
    )

    windows = tried(tmp_path, changes, "--sink", "windows", job=job)
    sums = tried(tmp_path, changes, "--sink", "sums", job=job)
    open_ = [tried(tmp_path, changes, "--open", "--sink", sink, job=job) for sink in ("windows", "sums")]

    assert [line["row"] for line in windows.lines] == [{"n": 2}]
    assert [line["row"] for line in sums.lines] == [{"s": 1}, {"s": 3}]
    assert [each.lines for each in open_] == [[], []]
