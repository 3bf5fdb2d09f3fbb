"""Test support for the SQL oracles: cut changes into batches and compare a query with its expected result."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from tests.clocked import Clocked, Line, job_of

Row = tuple[Any, ...]
Change = tuple[str, int, Row]
"""The table, +1 for an insertion or -1 for a retraction, and the row."""
NAMES = ("id", "k", "v", "ts")
Item = TypeVar("Item")


def cut(dice: random.Random, items: Sequence[Item], sizes: Sequence[int] = (1, 2, 5, 11)) -> Iterator[Sequence[Item]]:
    """Yield the items in batches of random sizes."""
    while items:
        size = dice.choice(sizes)
        batch, items = items[:size], items[size:]
        yield batch


def query_of(folder: Path, sql: str, sink: str, tables: Mapping[str, str], settings: str = "") -> Clocked:
    """Return a query; each table, the sink and the settings are given as a line of YAML."""
    declared = "".join(f"  {name}: {{topic: {name}, {table}}}\n" for name, table in tables.items())
    result = f"  result: {{topic: r, {sink}, sql: {json.dumps(sql)}}}"
    return Clocked.of(job_of(folder, f"job: j\n{settings}\ntables:\n{declared}sinks:\n{result}\n"))


def as_json(row: Row, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """Return a row in the form of a line of a JSON file."""
    values = (each.isoformat() if isinstance(each, date) else each for each in row)
    return dict(zip(names, values, strict=True))


def as_lines(changes: Iterable[Change], names: Sequence[str] = NAMES) -> list[Line]:
    """Return changes as lines of a file."""
    return [(table, "+I" if sign > 0 else "-D", as_json(row, names)) for table, sign, row in changes]


def as_rows(query: Clocked) -> Counter[Row]:
    """Return the result in DuckDB's Python types."""
    types = {each.name: each.type.sql for each in query.sink.value.fields}

    def value(name: str, each: Any) -> Any:
        if each is None or not types[name].startswith(("TIMESTAMP", "DATE")):
            return each
        return date.fromisoformat(each) if types[name] == "DATE" else datetime.fromisoformat(each)

    return Counter({tuple(value(*each) for each in row): count for row, count in query.view.items()})


def agrees(
    query: Clocked,
    batches: Iterable[Sequence[Change]],
    expected: Callable[[Sequence[Change]], Counter[Row]],
    names: Sequence[str] = NAMES,
) -> None:
    """Run every batch, repeat it after a restart, and assert that the query has the expected result."""
    for batch in batches:
        query.batch(0, *as_lines(batch, names))
        query.restart()
        assert as_rows(query) == expected(batch), batch
