"""The result of a query in a program or notebook: changes or rows, as an Arrow, pandas or Polars table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.errors import RowkindError
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.changes import Changes
from rowkind.quantities import counted, shortened

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_OWN = ("batch", "op")
_SHOWN_ROWS = 50
_NARROW = 40
_COLOURS = {"+I": ("#dcfce7", "#14532d"), "-D": ("#fee2e2", "#7f1d1d")}
_UPDATE = ("#fef3c7", "#78350f")
"""The background and the text colour of row kinds. They are readable on light and dark pages."""
_CELL = "text-align: left; padding: 2px 10px; white-space: pre"


class MissingLibraryError(RowkindError, ImportError):
    """A library is not installed that only this call needs."""


class Result:
    """Changes or rows of a query.

    Iterate over it for one dictionary per row. Arrow, DuckDB, pandas and Polars read it through the Arrow PyCapsule
    interface. `warnings`: what was dropped or did not match while the query ran.
    """

    def __init__(
        self, table: pa.Table, fold: Callable[[], pa.Table] | None = None, warnings: Sequence[str] = ()
    ) -> None:
        """Wrap a table. `fold` computes the rows that the table's changes leave; None if the table has rows already."""
        self._table = table
        self._fold = fold
        self.warnings = tuple(warnings)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._table.column_names)

    def fold(self) -> Result:
        """Return the rows that remain after all changes. A result that has rows already is returned as it is."""
        return self if self._fold is None else Result(self._fold(), warnings=self.warnings)

    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as a pandas DataFrame."""
        frame: pd.DataFrame = self._table.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a Polars DataFrame. Raises MissingLibraryError if Polars is not installed."""
        try:
            import polars  # noqa: PLC0415, ICN001 -- it need not be installed
        except ImportError:
            raise MissingLibraryError(
                "to_polars() needs Polars, which is not installed: install rowkind[polars], or use to_arrow() "
                "or to_pandas()"
            ) from None
        return polars.DataFrame(self._table)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._table.to_batches():
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        """Return the first rows as a text table."""
        texts = [
            list(self.columns),
            *([shortened(_text(value), _NARROW) for value in row.values()] for row in self._first()),
        ]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = [
            "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in texts
        ]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """Return the first rows as a table. Row kinds are coloured, and updated values are bold."""
        head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in self.columns)
        body, before = "", dict[str, Any]()
        for row in self._first():
            updated = before if self._fold is not None and (before.get("op"), row["op"]) == ("-U", "+U") else row
            border = "; border-top: 1px solid #94a3b8" if before and before.get("batch") != row.get("batch") else ""
            body += f"<tr>{''.join(self._cell(name, value, updated[name], border) for name, value in row.items())}</tr>"
            before = row
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes())
        rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        return f'<table style="border-collapse: collapse">{rows}</table>{notes}'

    def _cell(self, name: str, value: Any, before: Any, border: str) -> str:
        text = escape(_text(value))
        if self._fold is not None and name in _OWN:
            if name == "op":
                ground, ink = _COLOURS.get(value, _UPDATE)
                text = f'<b style="background: {ground}; color: {ink}; padding: 0 6px; border-radius: 4px">{text}</b>'
        elif value is None:
            text = f'<i style="opacity: 0.6">{text}</i>'
        elif value != before:
            text = f"<b>{text}</b>"
        return f'<td style="{_CELL}{border}">{text}</td>'

    def _first(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table.slice(0, _SHOWN_ROWS).to_pylist()
        return rows

    def _notes(self) -> Iterator[str]:
        what = "row" if self._fold is None else "change"
        shown = f", of which the first {_SHOWN_ROWS} are shown" if len(self) > _SHOWN_ROWS else ""
        yield f"{counted(len(self), what)}{shown}"
        yield from (f"warning: {each}" for each in self.warnings)


def of_changes(record: Record, batches: Sequence[Changes]) -> pa.Table:
    """Return the changes of all batches as one table: `batch`, `op`, and the columns of the rows.

    A column of the rows that is itself called `batch` or `op` becomes `row.batch` or `row.op`.
    """
    whole = Changes.concat(batches)
    numbers = np.repeat(np.arange(len(batches)), [len(each) for each in batches])
    rows = codec.table(record, whole.payload)
    names = [f"row.{name}" if name in _OWN else name for name in rows.column_names]
    kinds = pa.array(SYMBOLS, pa.string()).take(pa.array(whole.kind))
    return pa.table([pa.array(numbers, pa.int64()), kinds, *rows.columns], names=[*_OWN, *names])


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)
