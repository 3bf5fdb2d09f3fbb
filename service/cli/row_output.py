"""Print rows for people or for programs: as an aligned table, as JSON lines, or as CSV."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from rowkind.quantities import shortened

if TYPE_CHECKING:
    from rowkind.avro.schema import Record

OutputForm = Literal["table", "json", "csv"]
_Command = TypeVar("_Command", bound=Callable[..., Any])

_COLOURS = {"+I": "green", "+U": "green", "-U": "yellow", "-D": "red"}
_NUMBER = re.compile(r"(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)\b")
_AT_ONCE = 1_000
"""The number of rows that are aligned together."""
_WIDEST = 60
"""The longest text in a table's cell, except in the last column. The rest of a longer text is cut off."""


def row_output(command: _Command) -> _Command:
    """Add the option `--output` to a command, as its argument `form`."""
    option = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "json", "csv"]),
        help="Print an aligned table, JSON lines or CSV.  [default: table on a terminal, otherwise json]",
    )
    return option(command)


def numbers(record: Record) -> frozenset[str]:
    """Return the names of a record's columns that have numbers, which a table aligns to the right."""
    return frozenset(column.name for column in record.fields if _NUMBER.match(column.type.sql))


def with_row(own: Collection[str], row: Iterable[str]) -> list[str]:
    """Return the columns of objects with the members `own` and a row.

    If a column of the row has the name of a member, it is called `row.<name>`.
    """
    return [*own, *(f"row.{name}" if name in own else name for name in row)]


@dataclass
class RowOutput:
    """Prints objects with these columns; `right` names those that a table aligns to the right."""

    form: OutputForm | None
    columns: Sequence[str]
    right: frozenset[str] = frozenset()
    _waiting: list[list[str]] = field(default_factory=list)
    _widths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Choose the form, and print the header of CSV."""
        self.form = self.form or ("table" if sys.stdout.isatty() else "json")
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        if self.form == "csv":
            self._csv.writerow(self.columns)

    def add(self, found: Mapping[str, Any]) -> None:
        """Print an object whose member `row` has the columns of a row. A table may wait for `flush`.

        In a table and in CSV, these columns follow the object's other members, as in `with_row`.
        """
        flat = {name: value for name, value in found.items() if name != "row"}
        row = found.get("row", {})
        self._add(found, flat | dict(zip(with_row(flat, row)[len(flat) :], row.values(), strict=True)))

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Print a row, whose columns may have any names. A table may wait for `flush`."""
        self._add(row, row)

    def _add(self, found: Mapping[str, Any], flat: Mapping[str, Any]) -> None:
        if self.form == "json":
            click.echo(json.dumps(found, ensure_ascii=False))
            return
        if self.form == "csv":
            self._csv.writerow(["" if flat.get(name) is None else text_of(flat[name]) for name in self.columns])
            return
        *first, last = (_cell(flat, name) for name in self.columns)
        self._waiting.append([*(shortened(text, _WIDEST) for text in first), last])
        if len(self._waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Print what waits. If it is wider than the rows before it, the table begins again with its header."""
        if self._waiting:
            widths = _widths([list(self.columns), *self._waiting])
            if any(new > old for new, old in zip(widths, self._widths or [0] * len(widths), strict=True)):
                self._widths = widths
                click.echo(_line(self.columns, self.columns, widths, self.right, header=True))
            for cells in self._waiting:
                click.echo(_line(self.columns, cells, self._widths, self.right))
        self._waiting = []
        sys.stdout.flush()


def aligned(rows: Sequence[Mapping[str, Any]], right: frozenset[str] = frozenset()) -> list[str]:
    """Return objects as the lines of a table, with a header; `right` names the columns that are aligned to the right.

    A column that an object does not have is empty.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row, name) for name in columns] for row in rows]
    widths = _widths([columns, *cells])
    header = _line(columns, columns, widths, right, header=True)
    return [header, *(_line(columns, each, widths, right) for each in cells)]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column on a terminal."""
    from rich.cells import cell_len  # noqa: PLC0415 -- loaded when it is needed

    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def _line(
    columns: Sequence[str], cells: Sequence[str], widths: Sequence[int], right: frozenset[str], *, header: bool = False
) -> str:
    """Return a line of a table. Row kinds have colours, NULL is dim, and a header is bold."""
    from rich.cells import cell_len  # noqa: PLC0415 -- as above

    shown = []
    for name, cell, width in zip(columns, cells, widths, strict=True):
        styled = cell
        if header or cell == "NULL":
            styled = click.style(cell, bold=header or None, dim=not header or None)
        elif name == "op":
            styled = click.style(cell, fg=_COLOURS.get(cell))
        space = " " * (width - cell_len(cell))
        shown.append(space + styled if name in right else styled + space)
    return "  ".join(shown).rstrip()


def _cell(row: Mapping[str, Any], name: str) -> str:
    """Return the text of a table's cell; a column that the row does not have, such as all but a key's, is empty."""
    if name not in row:
        return ""
    return "NULL" if row[name] is None else text_of(row[name]).replace("\n", "\\n")


def text_of(value: Any) -> str:
    """Return a value in a cell: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
