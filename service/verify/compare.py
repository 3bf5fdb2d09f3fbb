# ruff: noqa: S608 - every name in a statement is quoted
"""Compare a sink's result as DuckDB computes it with the rows of its topic.

Rows are paired by the sink's key or, without a key, by all columns but floating-point numbers; equal rows are numbered.
Floating-point numbers are equal within 1e-9 of their size, because sums depend on the order of addition.

If the topic has rows of a key in several partitions, its consumers disagree about which one counts. Each of these rows
differs, even if it is as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from duckdb import DuckDBPyConnection

from rowkind.service.plan.scalar.typed import quoted

_TOLERANCE = {"DOUBLE": "1e-9", "FLOAT": "1e-6"}
_PARTS = 1_000_000
"""A sample takes keys by their hash modulo this number."""

_EXPECTED, _SURE, _FOUND, _PAIRS = '"verify:expected"', '"verify:sure"', '"verify:found"', '"verify:pairs"'
_POSSIBLE = '"verify:possible"'
_OWN = ('"#partition"', '"#offset"', '"#written"')


@dataclass(frozen=True)
class Sides:
    """What is compared.

    - `columns`: the columns of the result. `key`: the columns by which rows are paired; empty for all columns.
    - `expected`: the statement with the expected rows. `sure`: statements with the same columns, in order. An expected
      row surely counts if all of them have it too. They are computed one by one, and only while rows differ.
    - `found`: the relation with the rows of the topic: of each key, the last row in each partition. `own`: its columns
      with the partition, the offset and the time of the record.
    - `extra_unsure`: rows of the topic that are not expected may be right, because deletes may not have counted.
      `limits` returns a statement with all rows that may be right, and the positions of its columns that are known. A
      row that these columns exclude is wrong. It is called only if it is needed; None if the rows are not limited.
    - `unknown`: columns that are not compared.
    - `final`: a condition over `columns` that is true for rows that must be in the topic, or None if all must be.
    - `several`: the expected rows may have several rows for a key, of which the topic has one.
    """

    columns: Sequence[str]
    key: Sequence[str]
    expected: str
    sure: Iterable[str]
    found: str
    own: Sequence[str]
    extra_unsure: bool = False
    limits: Callable[[], tuple[str, Sequence[int]] | None] = lambda: None
    unknown: Collection[str] = ()
    final: str | None = None
    several: bool = False


@dataclass(frozen=True)
class AuditedPart:
    """The part of the rows that is compared.

    - `sample`: the share of the keys.
    - `since`: rows that the topic has from before this time are not compared. A missing row has no time, so all missing
      rows are reported.
    """

    sample: float = 1.0
    since: str | None = None


@dataclass(frozen=True)
class Difference:
    """A row that differs. `expected` or `found` is None if there is no such row.

    `partition`, `offset`: the place of the row found.
    """

    expected: dict[str, Any] | None
    found: dict[str, Any] | None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Compared:
    """The outcome: how many rows are equal, how many differ, and the first of these.

    `unsure`: rows that differ and may be right. `pending`: expected rows that may be written later. `split`: keys with
    rows in several partitions.
    """

    equal: int
    different: int
    unsure: int
    pending: int
    first: list[Difference] = field(default_factory=list)
    split: int = 0


def compare(connection: DuckDBPyConnection, sides: Sides, part: AuditedPart, most: int) -> Compared:
    """Return the differences, the first `most` of them as rows. Raises duckdb.Error."""
    run = connection.execute
    own = f"SELECT {', '.join(map(quoted, sides.columns))} FROM {sides.found}"
    shape = _Shape.of(sides, [str(type_) for _, type_, *_ in run(f"DESCRIBE {own}").fetchall()])
    run(f"CREATE OR REPLACE TEMP TABLE {_FOUND} AS {shape.found(sides, part)}")
    # Which of several rows the topic has depends on the order of arrival.
    is_sure = f"count(*) OVER ({shape.by}) = 1" if sides.several else "TRUE"
    once = ' WHERE "#n" = 1' if sides.several else ""
    expected = f'SELECT *, {is_sure} AS "#sure" FROM ({shape.numbered(shape.cast(sides.expected), part)})'
    run(f"CREATE OR REPLACE TEMP TABLE {_EXPECTED} AS SELECT * FROM ({expected}){once}")
    counts = shape.judge(connection, sides, part)
    for statement in sides.sure:
        if not counts.get("different"):
            break
        run(f"CREATE OR REPLACE TEMP TABLE {_SURE} AS {shape.numbered(shape.cast(statement), part)}")
        same = f's."#n" IS NOT NULL AND {shape.equal("e", "s")}'
        run(f"""
            CREATE OR REPLACE TEMP TABLE {_EXPECTED} AS SELECT e.* REPLACE ("#sure" AND {same} AS "#sure")
            FROM {_EXPECTED} e LEFT JOIN {_SURE} s ON {shape.paired("e", "s")}
        """)
        counts = shape.judge(connection, sides, part)
    if sides.extra_unsure and counts.get("unsure"):
        counts = shape.judge_extra(connection, sides)
    ((written,),) = run(f"SELECT count(*) FROM {_FOUND} WHERE {_recent(part)}").fetchall()
    ((matched,),) = run(f'SELECT count(*) FROM {_PAIRS} WHERE "#found"').fetchall()
    ((split,),) = run(f"SELECT count(*) FROM ({shape.split(part)})").fetchall()
    order = f'ORDER BY "#expected", "#found", {shape.order}, "#partition" LIMIT {most}'
    first = run(f"SELECT * FROM {_PAIRS} WHERE \"#verdict\" = 'different' {order}")
    rows = [_difference(sides.columns, row) for row in first.fetchall()]
    for table in (_EXPECTED, _SURE, _FOUND, _PAIRS, _POSSIBLE):
        run(f"DROP TABLE IF EXISTS {table}")
    return Compared(
        written - matched, counts.get("different", 0), counts.get("unsure", 0), counts.get("pending", 0), rows, split
    )


def _counts(connection: DuckDBPyConnection) -> dict[str, int]:
    """Return the number of pairs that are not equal, by verdict."""
    return dict(connection.execute(f'SELECT "#verdict", count(*) FROM {_PAIRS} GROUP BY 1').fetchall())


def _recent(part: AuditedPart) -> str:
    """Return the condition that a row of the topic was written at or after the time of `--since`."""
    return "TRUE" if part.since is None else f"\"#written\" >= TIMESTAMPTZ '{part.since}'"


def _difference(names: Sequence[str], row: tuple[Any, ...]) -> Difference:
    _, expected, found, _, partition, offset, *values = row
    own, other = values[: len(names)], values[len(names) :]
    return Difference(
        dict(zip(names, own, strict=True)) if expected else None,
        dict(zip(names, other, strict=True)) if found else None,
        partition,
        offset,
    )


@dataclass(frozen=True)
class _Shape:
    """The columns as c0, c1, …, with their types in the topic.

    `keys` are the positions of the columns that pair rows, and `unknown` of those that are not compared.
    """

    types: Sequence[str]
    keys: Sequence[int]
    names: Sequence[str]
    unknown: Collection[int]

    @classmethod
    def of(cls, sides: Sides, types: Sequence[str]) -> _Shape:
        at = [sides.columns.index(name) for name in sides.key]
        unknown = {sides.columns.index(name) for name in sides.unknown}
        exact = [n for n, type_ in enumerate(types) if type_ not in _TOLERANCE and n not in unknown]
        return cls(types, at or exact, sides.columns, unknown)

    @property
    def by(self) -> str:
        """The PARTITION BY of the columns that pair rows."""
        return f"PARTITION BY {', '.join(f'c{at}' for at in self.keys)}" if self.keys else ""

    @property
    def order(self) -> str:
        """The order in which differences are shown."""
        return ", ".join(f"e{at}, f{at}" for at in self.keys) or "1"

    def cast(self, statement: str) -> str:
        """Return a statement's rows as c0, c1, …, in the types of the topic."""
        plain = ", ".join(f"c{at}" for at in range(len(self.types)))
        shown = ", ".join(f"CAST(c{at} AS {type_}) AS {quoted(self.names[at])}" for at, type_ in enumerate(self.types))
        return f"(SELECT {shown} FROM ({statement}) AS computed({plain}))"

    def found(self, sides: Sides, part: AuditedPart) -> str:
        """Return the numbered rows of the topic, with their places and times, and whether their key is split."""
        rows = self.numbered(sides.found, part, sides.own)
        if not sides.key:
            return f'SELECT *, FALSE AS "#split" FROM ({rows})'
        # Each row of a key that is in several partitions is compared with the expected row.
        return f'SELECT * REPLACE (1 AS "#n"), count(*) OVER ({self.by}) > 1 AS "#split" FROM ({rows})'

    def split(self, part: AuditedPart) -> str:
        """Return a statement with a row for each key that is in several partitions."""
        keys = ", ".join(f"c{at}" for at in self.keys) or "1"
        return f'SELECT DISTINCT {keys} FROM {_FOUND} WHERE "#split" AND {_recent(part)}'

    def numbered(self, relation: str, part: AuditedPart, own: Sequence[str] = ()) -> str:
        """Return rows as c0, c1, …, with the number of each among those that pair with the same rows.

        `own`: the columns with the place and the time of the record.
        """
        shown = ", ".join(f"{quoted(name)} AS c{at}" for at, name in enumerate(self.names))
        place = "".join(f", {quoted(name)} AS {_OWN[at]}" for at, name in enumerate(own))
        rest = [f"c{at}" for at in range(len(self.types)) if at not in self.keys and at not in self.unknown]
        rest = [each for each in rest if self.types[int(each[1:])] in _TOLERANCE]
        order = f" ORDER BY {', '.join(rest)}" if rest else ""
        number = f"row_number() OVER ({self.by}{order})"
        kept = ""
        if part.sample < 1:
            hashed = ", ".join(f"c{at}" for at in self.keys) or "0"
            kept = f" WHERE hash({hashed}) % {_PARTS} < {round(part.sample * _PARTS)}"
        return f'SELECT *, {number} AS "#n" FROM (SELECT {shown}{place} FROM {relation}){kept}'

    def paired(self, one: str, other: str) -> str:
        """Return the condition by which rows of two tables are paired."""
        return " AND ".join(
            [*(f"{one}.c{at} IS NOT DISTINCT FROM {other}.c{at}" for at in self.keys), f'{one}."#n" = {other}."#n"']
        )

    def equal(self, one: str, other: str) -> str:
        """Return the condition that two paired rows are equal."""
        found = []
        for at, type_ in enumerate(self.types):
            if at in self.keys or at in self.unknown:
                continue
            left, right = f"{one}.c{at}", f"{other}.c{at}"
            same = f"{left} IS NOT DISTINCT FROM {right}"
            if (tolerance := _TOLERANCE.get(type_)) is not None:
                near = f"abs({left} - {right}) <= {tolerance} * greatest(abs({left}), abs({right}))"
                same = f"({same} OR coalesce(isfinite({left}) AND isfinite({right}) AND {near}, FALSE))"
            found.append(same)
        return " AND ".join(found) or "TRUE"

    def judge(self, connection: DuckDBPyConnection, sides: Sides, part: AuditedPart) -> dict[str, int]:
        """Make the table of the pairs that are not equal, and return their number by verdict."""
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_PAIRS} AS {self.pairs(sides, part)}")
        return _counts(connection)

    def judge_extra(self, connection: DuckDBPyConnection, sides: Sides) -> dict[str, int]:
        """Find the rows of the topic that are certainly not right, and return the number of pairs by verdict."""
        if (limits := sides.limits()) is not None:
            statement, known = limits
            at = [each for each in known if self.types[each] not in _TOLERANCE]
            shown = ", ".join([*(f"{quoted(self.names[each])} AS c{each}" for each in at), 'count(*) AS "#most"'])
            group = f" GROUP BY {', '.join(f'c{each}' for each in at)}" if at else ""
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {_POSSIBLE} AS SELECT {shown} FROM {self.cast(statement)}{group}"
            )
            same = " AND ".join(f"p.c{each} IS NOT DISTINCT FROM {_PAIRS}.f{each}" for each in at) or "TRUE"
            # Rows with equal keys may differ in the known columns, so they cannot be counted.
            enough = 'p."#most" > 0' if sides.key else f'p."#most" >= {_PAIRS}."#number"'
            connection.execute(
                f'UPDATE {_PAIRS} SET "#verdict" = \'different\' WHERE NOT "#expected" '
                f"AND NOT EXISTS (SELECT 1 FROM {_POSSIBLE} p WHERE {same} AND {enough})"
            )
        return _counts(connection)

    def pairs(self, sides: Sides, part: AuditedPart) -> str:
        """Return the pairs that are not equal, each with its verdict."""
        final = "TRUE"
        if sides.final is not None:
            own = ", ".join(f"e.c{at} AS {quoted(name)}" for at, name in enumerate(self.names))
            final = f"coalesce((SELECT {sides.final} FROM (SELECT {own})), FALSE)"
        extra = "'unsure'" if sides.extra_unsure else "'different'"
        verdict = f"""CASE
            WHEN f."#split" THEN 'different'
            WHEN e."#n" IS NULL THEN {extra}
            WHEN f."#n" IS NULL AND NOT {final} THEN 'pending'
            WHEN NOT e."#sure" THEN 'unsure'
            ELSE 'different' END"""
        columns = ", ".join(
            [f"e.c{at} AS e{at}" for at in range(len(self.types))]
            + [f"f.c{at} AS f{at}" for at in range(len(self.types))]
        )
        there = 'e."#n" IS NOT NULL AS "#expected", f."#n" IS NOT NULL AS "#found", f."#n" AS "#number"'
        place = f"f.{_OWN[0]}, f.{_OWN[1]}"
        return (
            f'SELECT {verdict} AS "#verdict", {there}, {place}, {columns} '
            f"FROM {_EXPECTED} e FULL JOIN {_FOUND} f ON {self.paired('e', 'f')} "
            f'WHERE (e."#n" IS NULL OR f."#n" IS NULL OR f."#split" OR NOT ({self.equal("e", "f")})) '
            f'AND (f."#n" IS NULL OR {_recent(part)})'
        )
