"""The result of `Job.try_` as a table of several libraries, as text, and in a notebook."""

from __future__ import annotations

import sys

import duckdb
import polars as pl
import pytest

import rowkind
from rowkind.service.library.result import MissingLibraryError

JOB = rowkind.Job.from_yaml("""
job: totals
tables:
  sales:
    mode: retract
    columns: {id: INT NOT NULL, product: STRING NOT NULL, amount: "DECIMAL(10,2)"}
    primary_key: [id]
sinks:
  totals: {mode: retract, key: product, sql: "SELECT product, SUM(amount) AS total FROM sales GROUP BY product"}
  named: {mode: retract, sql: "SELECT id AS batch, product AS op FROM sales"}
""")
TEA = {"id": 1, "product": "tea", "amount": "2.50"}
CHANGES = [
    {"table": "sales", "op": "+I", "row": TEA},
    {"table": "sales", "op": "+I", "row": {"id": 2, "product": "tea", "amount": None}},
    {"table": "sales", "op": "+I", "row": {"id": 3, "product": "tea", "amount": "1.00"}},
]


def test_a_result_is_text() -> None:
    """The text has a line for each change, and their number."""
    assert repr(JOB.try_(CHANGES, "totals")).splitlines() == [
        "batch  op  product  total",
        "0      +I  tea      2.50",
        "2      -U  tea      2.50",
        "2      +U  tea      3.50",
        "3 changes",
    ]


def test_a_result_is_a_table_in_a_notebook() -> None:
    """Row kinds have colours, updated values are bold, and text is escaped."""
    html = JOB.try_(CHANGES, "totals")._repr_html_()
    assert html.count("<tr>") == 4
    assert all(f"{kind}</b>" in html for kind in ("+I", "-U", "+U"))
    assert "<b>3.50</b>" in html
    assert "<b>tea</b>" not in html
    odd = JOB.try_([{"table": "sales", "op": "+I", "row": TEA | {"product": "<b>"}}], "totals")
    assert "&lt;b&gt;" in odd._repr_html_()


def test_a_long_result_shows_its_first_rows() -> None:
    """Only 50 rows are shown, and the text says how many there are."""
    many = [{"table": "sales", "op": "+I", "row": TEA | {"id": number, "product": str(number)}} for number in range(60)]
    result = JOB.try_(many, "totals")
    assert repr(result).splitlines()[-1] == "60 changes, of which the first 50 are shown"
    assert len(result) == 60


def test_a_result_is_a_table_of_other_libraries() -> None:
    """Arrow, pandas, Polars and DuckDB have the same values."""
    result = JOB.try_(CHANGES, "totals").fold()
    (row,) = result
    assert result.to_arrow().to_pylist() == [row]
    assert result.to_pandas().to_dict("records") == [row]
    assert result.to_polars().to_dicts() == [row]
    assert pl.DataFrame(result).to_dicts() == [row]
    assert duckdb.sql("SELECT product FROM result").fetchall() == [("tea",)]


def test_columns_with_the_names_of_our_own_are_renamed() -> None:
    """A result column called `batch` or `op` is `row.batch` or `row.op` among the changes, and itself among rows."""
    result = JOB.try_(CHANGES[:1], "named")
    assert list(result) == [{"batch": 0, "op": "+I", "row.batch": 1, "row.op": "tea"}]
    assert list(result.fold()) == [{"batch": 1, "op": "tea"}]


def test_without_polars_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Polars is not installed, `to_polars` raises an ImportError that names the extra."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"Polars, which is not installed: install rowkind\[polars\]") as raised:
        JOB.try_(CHANGES, "totals").to_polars()
    assert isinstance(raised.value, MissingLibraryError | rowkind.RowkindError)


def test_what_found_no_row_is_a_warning() -> None:
    """A retraction without a row is in the result's warnings and below its table."""
    job = rowkind.Job.from_yaml("""
job: late
tables: {a: {mode: retract, columns: {x: INT}, exact: false}}
sinks: {s: {mode: retract, sql: "SELECT x, COUNT(*) AS n FROM a GROUP BY x"}}
""")
    result = job.try_([{"table": "a", "op": "-D", "row": {"x": 1}}])
    assert [each.partition(": ")[2] for each in result.warnings] == ["1 retraction found no row to retract"]
    assert "warning: " in result._repr_html_()
