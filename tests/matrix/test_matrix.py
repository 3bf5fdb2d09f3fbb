"""Each type of Avro, Kafka Connect and Debezium, in each format, read as each declared type."""

from __future__ import annotations

import pytest

from rowkind.avro.mismatch import spelled_out
from rowkind.avro.type import Type
from tests.matrix.cells import Cell, cells, message, nested, outcomes, read
from tests.matrix.page import PAGE, replaced

# One group, so that the tests share cached outcomes.
pytestmark = pytest.mark.xdist_group("matrix")
CELLS = [pytest.param(cell, id=f"{cell.form}: {cell.sent.name}") for cell in cells()]


@pytest.mark.parametrize("cell", CELLS)
def test_a_value_is_right_or_refused_with_what_to_declare(cell: Cell) -> None:
    """A refusal names the column, both types and a remedy, and no value becomes NULL or another time without one."""
    for declared, (value, reason) in outcomes(cell).items():
        if declared in cell.right:
            assert (value, reason) == (cell.right[declared], ""), declared
            continue
        assert value is None, f"{declared}: {value!r} was not expected"
        assert reason, f"{declared}: NULL in silence"
        assert "'x'" in reason or "x:" in reason, reason
        assert spelled_out(Type.of(declared)) in reason, reason
        assert "declare" in reason or "units" in reason, reason
        if cell.form != "JSON":
            assert any(word in reason for word in cell.sent.words), reason


@pytest.mark.parametrize("inside", ["ARRAY<{}>", "MAP<STRING, {}>", "STRUCT<a: {}>"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_value_inside_of_another_is_read_the_same(cell: Cell, inside: str) -> None:
    """An element of an array, a map value and a struct field are read as a column of the type is."""
    found = nested(cell, inside)
    value, registry = message(found)
    for declared, right in list(cell.right.items())[:2]:
        expected = [right] if inside.startswith("ARRAY") else {"a": right}
        assert read(value, registry, inside.format(declared), cell.form) == (expected, ""), declared


@pytest.mark.sampled(0)
def test_the_table_of_the_page_is_up_to_date() -> None:
    """The table equals the output of `python -m tests.matrix`."""
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page) == page
