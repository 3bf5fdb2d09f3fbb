"""Rows as a person or a program reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rowkind.avro.schema import Record
from rowkind.service.cli.row_output import OutputForm, RowOutput, numbers, with_row

RECORD = Record.of({"id": "BIGINT", "name": "STRING", "price": "DECIMAL(10,2)", "tags": "ARRAY<STRING>"})
ROWS: list[Mapping[str, Any]] = [
    {"op": "+I", "row": {"id": 1, "name": "tea", "price": "12.50", "tags": ["a", "b"]}},
    {"op": "+I", "row": {"id": 20, "name": None, "price": "7.00", "tags": None}},
    {"op": "-D", "row": {"id": 1}},
]


def printed(form: OutputForm, capsys: pytest.CaptureFixture[str], *parts: list[Mapping[str, Any]]) -> str:
    """Return what is printed for these parts, each followed by a flush."""
    output = RowOutput(form, ["op", *(column.name for column in RECORD.fields)], numbers(RECORD))
    for part in parts:
        for row in part:
            output.add(row)
        output.flush()
    return capsys.readouterr().out


def test_a_table_is_aligned_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    """NULL is written out, and columns that a delete does not have are empty."""
    assert printed("table", capsys, ROWS) == (
        'op  id  name  price  tags\n+I   1  tea   12.50  ["a", "b"]\n+I  20  NULL   7.00  NULL\n-D   1\n'
    )


def test_a_wider_row_begins_the_table_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that fit continue below the same header."""
    wide = [{"op": "+I", "row": {"id": 1, "name": "Darjeeling", "price": "1.00", "tags": None}}]
    text = printed("table", capsys, ROWS[1:], ROWS[1:], wide, ROWS[1:])
    assert text.count("op  id  name") == 2
    assert text.count("+I  20  NULL         7.00") == 1


def test_wide_characters_and_line_breaks_keep_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A character that takes two cells counts as two, and a row is one line."""
    rows = [{"op": "+I", "row": {"id": 1, "name": name, "price": "1.00", "tags": None}} for name in ("お茶", "a\nb")]
    assert printed("table", capsys, rows) == (
        "op  id  name  price  tags\n+I   1  お茶   1.00  NULL\n+I   1  a\\nb   1.00  NULL\n"
    )


def test_a_long_text_is_cut_unless_it_is_last(capsys: pytest.CaptureFixture[str]) -> None:
    """So that one text does not push the other columns off the screen."""
    rows = [{"op": "+I", "row": {"id": 1, "name": "n" * 100, "price": "1.00", "tags": ["t" * 100]}}]
    text = printed("table", capsys, rows)
    assert f"{'n' * 59}…  " in text
    assert "t" * 100 in text


def test_json_and_csv_are_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON keeps the structure, and CSV has the columns of a row beside the others."""
    assert printed("json", capsys, ROWS[2:]) == '{"op": "-D", "row": {"id": 1}}\n'
    assert printed("csv", capsys, ROWS) == (
        'op,id,name,price,tags\n+I,1,tea,12.50,"[""a"", ""b""]"\n+I,20,,7.00,\n-D,1,,,\n'
    )


@pytest.mark.parametrize(("form", "wanted"), [("table", "op  row\nc     1\n"), ("csv", "op,row\nc,1\n")])
def test_columns_of_a_row_may_have_any_name(form: OutputForm, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A column `op` need not have a row kind, and a column `row` need not have a row."""
    output = RowOutput(form, ["op", "row"], frozenset({"row"}))
    output.add_row({"op": "c", "row": 1})
    output.flush()
    assert capsys.readouterr().out == wanted


def test_a_column_of_the_row_does_not_replace_the_row_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """A column `op` of a changed row is called `row.op` in CSV."""
    output = RowOutput("csv", with_row(["op"], ["id", "op"]))
    output.add({"op": "-D", "row": {"id": 1, "op": "c"}})
    assert capsys.readouterr().out == "op,id,row.op\n-D,1,c\n"
