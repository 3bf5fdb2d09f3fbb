"""Cases with a TTL and a driven clock, and models of their results.

With `on_expire: retract` the result is SQL over the rows that have not expired, so that any query may be a case.
Otherwise there are naive models, because SQL has no expiry:

- join: `tests.oracle.naive_join` over the tables' rows.
- groups: a group that was not written for the TTL begins again; its output stays. A row with a primary key that is
  inserted and deleted within a batch counts as never written.

Rows are three integers (id, k, v). No case writes to a row that has expired; the oracles of the operators test that.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rowkind.operators.changelog import RowKind
from rowkind.operators.join.join import JoinKind
from rowkind.service.job.model import Job
from tests.changelogs import Change as Signed
from tests.fuzz.changelogs import Change, Row, Rows, rows_of
from tests.oracle.inputs import Input
from tests.oracle.naive_join import NaiveJoin, NaiveSide

if TYPE_CHECKING:
    from tests.fuzz.case import Case
    from tests.fuzz.oracle import Bag

START = 1_700_000_000_000
COLUMNS = ("id", "k", "v")

_JOIN = "SELECT l.id AS a, l.k AS b, l.v AS c, r.id AS d, r.k AS e, r.v AS f FROM l {kind} r ON l.k = r.k{more}"
_MORE = " AND l.v < r.v"
_GROUPS = "SELECT l.k AS a, COUNT(*) AS b, SUM(l.v) AS c FROM l GROUP BY l.k"
_KINDS: Mapping[str, JoinKind] = {"JOIN": "inner", "LEFT JOIN": "left", "RIGHT JOIN": "right", "FULL JOIN": "full"}


def random_expiring(rng: random.Random) -> dict[str, Any]:
    """Return the parts of a case: a join of two tables or groups of one, with a TTL and pauses between batches."""
    sql = _GROUPS
    if rng.random() < 0.75:
        sql = _JOIN.format(kind=rng.choice(list(_KINDS)), more=rng.choice(("", _MORE)))
    ttls: dict[str, int | None] = {each: rng.choice((None, 10, 25)) for each in ("l", "r")}
    tables = {name: _entry(rng, ttl) for name, ttl in ttls.items()}
    if sql == _GROUPS:
        tables = {"l": tables["l"]}
    job = rng.choice((None, 10, 40))
    batch_rows, batches = rng.choice((1, 2, 4)), rng.randint(4, 8)
    clock = [START]
    while len(clock) < batches:
        clock.append(clock[-1] + rng.choice((0, 1, 4, 9, 10, 26)))
    writer = _Writer(rng, tables, {name: ttls[name] or job for name in tables})
    changes = [writer.change(now) for now in clock for _ in range(batch_rows)]
    return {
        "sql": sql,
        "tables": tables,
        "batch_rows": batch_rows,
        "changes": changes,
        "ttl": f"{job}ms" if job else None,
        "clock": clock,
    }


def random_lives(rng: random.Random, tables: Mapping[str, Mapping[str, Any]], batches: int) -> dict[str, Any]:
    """Return the TTLs, `on_expire: retract` and clock of a case with so many batches of these tables."""
    clock = [START]
    while len(clock) < batches:
        clock.append(clock[-1] + rng.choice((0, 1, 4, 9, 10, 26)))
    timed = {name: {**entry, **rng.choice(({}, {"ttl": "15ms"}))} for name, entry in tables.items()}
    return {"tables": timed, "ttl": f"{rng.choice((10, 25))}ms", "on_expire": "retract", "clock": clock}


def expire(tables: Mapping[str, Rows], case: Case, job: Job, now: int) -> None:
    """Drop the rows that were written a TTL ago; a row's number is that of the change that wrote it."""
    for name, rows in tables.items():
        ttl = job.tables[name].ttl or job.ttl
        assert ttl is not None, "the job has one"
        rows.live = [(at, row) for at, row in rows.live if case.now(at // case.batch_rows) + ttl > now]


def _entry(rng: random.Random, ttl: int | None) -> dict[str, Any]:
    mode = rng.choice(("append", "upsert", "retract"))
    keyed = mode != "append" or rng.random() < 0.5
    columns = {"id": "INT NOT NULL" if keyed else "INT", "k": "INT", "v": "INT"}
    entry: dict[str, Any] = {"mode": mode, "columns": columns}
    if keyed:
        entry["primary_key"] = ["id"]
    if ttl is not None:
        entry["ttl"] = f"{ttl}ms"
    return entry


@dataclass
class _Writer:
    """A generator of changes to tables with these TTLs in ms; it changes no row that has expired."""

    rng: random.Random
    tables: Mapping[str, Mapping[str, Any]]
    ttls: Mapping[str, int | None]

    def __post_init__(self) -> None:
        self._rows = rows_of(self.tables)
        self._next = 0

    def change(self, now: int) -> Change:
        """Return the next change at this time."""
        rng = self.rng
        name = rng.choice(list(self.tables))
        rows, ttl, mode = self._rows[name], self.ttls[name], self.tables[name]["mode"]
        alive = [row for at, row in rows.live if ttl is None or at + ttl > now]
        self._next += 1
        row: Row = {"id": self._next, "k": rng.choice((1, 1, 2, None)), "v": rng.randint(0, 3)}
        op = "+I"
        if mode != "append" and alive and rng.random() < 0.6:
            old = rng.choice(alive)
            op = rng.choice(("+U", "+U", "-D"))
            row = dict(old) if op == "-D" or rng.random() < 0.4 else {**row, "id": old["id"]}
        elif "primary_key" not in self.tables[name] and alive and rng.random() < 0.4:
            row = dict(rng.choice(alive))
        rows.apply(op, row, now)
        return {"table": name, "op": op, "row": row}


class ExpiryModel:
    """The result of a case with a clock, batch by batch. Raises ValueError for a query without a model."""

    def __init__(self, case: Case, job: Job) -> None:
        match = re.fullmatch(_pattern(_JOIN), case.sql)
        if not match and case.sql != _GROUPS:
            raise ValueError(f"there is no model of {case.sql}")
        self._rows: Mapping[str, Rows] = rows_of(case.tables)
        ttls = {name: job.tables[name].ttl or job.ttl for name in case.tables}
        self._ttls = ttls
        self._model: _Join | _Groups = _Groups(ttls["l"], keyed=bool(self._rows["l"].primary_key))
        if match:
            inputs = [
                NaiveSide(Input("unique key" if rows.primary_key else "multiset", by_seq=True), ttls[name])
                for name, rows in self._rows.items()
            ]
            self._model = _Join(_KINDS[match["kind"]], inputs, with_condition=bool(match["more"]))
        self._number = 0
        self._result: Bag = Counter()

    def batch(self, changes: Sequence[Change], now: int) -> Bag:
        """Return the rows of the result after one more batch."""
        self._result.update(self._model.process(self._signed(changes, now), now))
        assert all(count >= 0 for count in self._result.values()), "the model takes back what it did not give"
        self._result = +self._result
        return self._result

    def _signed(self, changes: Sequence[Change], now: int) -> Sequence[Signed]:
        """Return the inserted and retracted rows of the tables. Raises ValueError if an expired row is written."""
        found = []
        for each in changes:
            rows, side = self._rows[each["table"]], "lr".index(each["table"])
            new = {name: each["row"].get(name) for name in COLUMNS}
            at = rows.find(new) if rows.primary_key or each["op"] in ("-U", "-D") else None
            if at is not None:
                ttl = self._ttls[each["table"]]
                if ttl is not None and rows.live[at][0] + ttl <= now:
                    raise ValueError("there is no model of a row that is written when it has expired")
                found.append(Signed(side, RowKind.DELETE, tuple(rows.live[at][1].values()), self._number))
            if each["op"] in ("+I", "+U"):
                found.append(Signed(side, RowKind.INSERT, tuple(new.values()), self._number + 1))
            rows.apply(each["op"], new, now)
            self._number += 2
        return found


def _pattern(template: str) -> str:
    kinds = "|".join(_KINDS)
    text = re.escape(template).replace(r"\{kind\}", f"(?P<kind>{kinds})")
    return text.replace(r"\{more\}", f"(?P<more>{re.escape(_MORE)})?")


class _Join:
    """Two joined tables, including null-padded rows."""

    def __init__(self, kind: JoinKind, sides: Sequence[NaiveSide], *, with_condition: bool) -> None:
        left, right = sides
        self._naive = NaiveJoin(kind, left, right, _less if with_condition else lambda _left, _right: True)

    def process(self, changes: Sequence[Signed], now: int) -> Counter[Any]:
        """Return the changes of the result that a batch causes."""
        return self._naive.process(changes, now).net


def _less(left: tuple[int | None, ...], right: tuple[int | None, ...]) -> bool:
    return None not in (left[-1], right[-1]) and cast("int", left[-1]) < cast("int", right[-1])


class _Groups:
    """A table grouped by its second column."""

    def __init__(self, ttl: int | None, *, keyed: bool) -> None:
        self._ttl, self._keyed = ttl, keyed
        self._groups: dict[int | None, tuple[Counter[Any], int]] = {}

    def process(self, changes: Sequence[Signed], now: int) -> Counter[Any]:
        """Return the changes of the result that a batch causes."""
        if self._ttl is not None:
            self._groups = {key: each for key, each in self._groups.items() if each[1] + self._ttl > now}
        step: Counter[Any] = Counter()
        step.subtract(self._results())
        for change in _net(changes) if self._keyed else changes:
            rows = self._groups.get(change.row[1], (Counter(), 0))[0]
            rows[change.row] += change.sign
            self._groups[change.row[1]] = rows, now
        self._groups = {key: each for key, each in self._groups.items() if +each[0]}
        step.update(self._results())
        return step

    def _results(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for key, (rows, _) in self._groups.items():
            values = [row[2] for row in rows.elements() if row[2] is not None]
            found[key, rows.total(), sum(values) if values else None] += 1
        return found


def _net(changes: Sequence[Signed]) -> Iterator[Signed]:
    """Yield for each key its row before the batch as a retraction, and the row that is left as an insertion."""
    of_key: dict[Any, list[Signed]] = {}
    for change in changes:
        of_key.setdefault(change.row[0], []).append(change)
    for first, *_, last in ([*each, each[-1]] for each in of_key.values()):
        if first.sign < 0:
            yield first
        if last.sign > 0:
            yield last
