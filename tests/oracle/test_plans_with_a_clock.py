"""Whole plans under a driven clock against chains of naive operators, each input with its own TTL.

These tests detect errors that no single operator shows. A refreshed row must not expire downstream because an operator,
a projection or netting dropped its refresh. A row that is not refreshed must not live on. A retraction that arrives
after expiry must not stop half-way. The result is compared after every batch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.join.join import JoinKind
from rowkind.service.physical.node import PhysicalInput as Kept
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalJoin, PhysicalNormalize, PhysicalRank
from rowkind.service.physical.tree import walk
from tests.changelogs import Change, Row
from tests.clocked import Clocked, Line, job_of
from tests.oracle.naive_chain import Counted, Joined, Naive, Normalized, Projected, Ranked, Read
from tests.seeds import drawn, seeds

CASES_EACH = seeds(6)
BATCHES = 25
TABLES = {"u": ("k", "a", "n"), "r": ("b", "m"), "s": ("x", "y")}
"""`u` is an upsert table by `k`; the other tables have no key and may retract rows."""


@dataclass(frozen=True)
class State:
    """The state of a plan: the sides of its joins, and the TTLs in ms of its other operators, by name."""

    joins: list[tuple[Kept, Kept]]
    ttls: dict[str, int | None]

    @classmethod
    def of(cls, sink: PhysicalSink) -> State:
        """Return the state of this plan."""
        joins, ttls = [], {}
        for node in walk(sink):
            match node:
                case PhysicalJoin():
                    joins.append((node.left_input, node.right_input))
                case PhysicalAggregate():
                    ttls[node.node] = node.aggregation.ttl_ms
                case PhysicalRank() | PhysicalNormalize():
                    ttls[node.node] = node.state.ttl_ms
                case _:
                    pass
        return cls(joins, ttls)


@dataclass(frozen=True)
class Chain:
    """A query and the equivalent chain of naive operators, given how the plan keeps rows."""

    sql: str
    naive: Callable[[State], Naive]


def _u(kept: State, *columns: int) -> Naive:
    return Normalized(Read(0, columns), len(columns), kept.ttls["normalize_1"])


def _joined(kind: JoinKind, left: Naive, right: Read, on: int, kept: tuple[Kept, Kept]) -> Naive:
    """Join left rows of two columns, with `on` as the key, with right rows by their first column."""
    return Joined(kind, (left, right), (2, len(right.columns)), (on, 0), kept)


def _of_groups(kept: State) -> Naive:
    groups = Counted(Projected(_u(kept, 0, 1), (1,)), kept.ttls["aggregate_1"])
    return Projected(_joined("left", groups, Read(1, (0, 1)), 0, kept.joins[0]), (0, 1, 3))


def _of_ranked(kept: State) -> Naive:
    ranked = Projected(Ranked(_u(kept, 0, 1, 2), 2, kept.ttls["rank_1"]), (0, 1))
    return Projected(_joined("inner", ranked, Read(1, (0, 1)), 1, kept.joins[0]), (0, 1, 3))


def _counted(kept: State) -> Naive:
    # Rows of a table without a key are identified by all their columns, including those that are not read.
    joined = _joined("inner", _u(kept, 0, 1), Read(1, (0, 1)), 1, kept.joins[0])
    return Counted(Projected(joined, (1,)), kept.ttls["aggregate_1"])


def _of_joined(kind: JoinKind) -> Callable[[State], Naive]:
    def chain(kept: State) -> Naive:
        first = _joined(kind, _u(kept, 0, 1), Read(1, (0, 1)), 1, kept.joins[0])
        second = _joined(kind, Projected(first, (0, 3)), Read(2, (0, 1)), 1, kept.joins[1])
        return Projected(second, (0, 1, 3))

    return chain


CHAINS = {
    "normalize, join": Chain(
        "SELECT u.k, u.a, r.m FROM u JOIN r ON u.a = r.b",
        lambda kept: Projected(_joined("inner", _u(kept, 0, 1), Read(1, (0, 1)), 1, kept.joins[0]), (0, 1, 3)),
    ),
    "aggregate, left join": Chain(
        "SELECT g.a, g.c, r.m FROM (SELECT a, COUNT(*) AS c FROM u GROUP BY a) g LEFT JOIN r ON g.a = r.b", _of_groups
    ),
    "rank, join": Chain(
        "SELECT t.k, t.a, r.m FROM (SELECT k, a FROM u QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY n DESC) < 3)"
        " AS t JOIN r ON t.a = r.b",
        _of_ranked,
    ),
    "join, aggregate": Chain("SELECT u.a, COUNT(*) AS c FROM u JOIN r ON u.a = r.b GROUP BY u.a", _counted),
    "join, join": Chain("SELECT u.k, r.m, s.y FROM u JOIN r ON u.a = r.b JOIN s ON r.m = s.x", _of_joined("inner")),
    "left join, left join": Chain(
        "SELECT u.k, r.m, s.y FROM u LEFT JOIN r ON u.a = r.b LEFT JOIN s ON r.m = s.x", _of_joined("left")
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_plan_is_the_chain_of_its_operators_at_any_time(name: str, tmp_path: Path) -> None:
    """After every batch, whatever the time since the last one, the folded results are equal."""
    for rng in drawn(f"plans with a clock, {name}", CASES_EACH):
        query = Clocked.of(job_of(tmp_path, _job(CHAINS[name].sql, rng)))
        kept = State.of(query.sink)
        naive = CHAINS[name].naive(kept)
        expected: Counter[tuple[int | None, ...]] = Counter()
        now = 0
        for batch in _batches(rng):
            now += rng.choice((1, 500, 500, 1000, 1000, 4000))
            query.batch(now, *map(_line, batch))
            for change in naive.process(batch, now):
                expected[change.row] += change.sign
            expected = Counter({row: count for row, count in expected.items() if count})
            found = {tuple(value for _, value in row): count for row, count in query.view.items()}
            assert found == expected, f"at {now} ms, {kept}"


def _job(sql: str, rng: random.Random) -> str:
    """Return a job with the query and the tables, some with their own TTL; the job's TTL is for operators' results."""

    def ttl() -> str:
        return rng.choice(("2s", "3s", "5s", "8s"))

    tables = []
    for table, columns in TABLES.items():
        mode = "mode: upsert, primary_key: [k]" if table == "u" else "mode: retract"
        declared = ", ".join(f"{column}: INT{' NOT NULL' if column == 'k' else ''}" for column in columns)
        own = f", ttl: {ttl()}" if rng.random() < 0.7 else ""
        tables.append(f"  {table}: {{{mode}{own}, columns: {{{declared}}}}}")
    job = [f"ttl: {ttl()}"] if rng.random() < 0.7 else []
    sink = f'sinks: {{result: {{mode: retract, sql: "{sql}"}}}}'
    return "\n".join(["job: clocked", *job, "tables:", *tables, sink])


def _batches(rng: random.Random) -> list[list[Change]]:
    """Return rows that are inserted, repeated, updated and retracted, also long after they have expired."""
    came: list[list[Row]] = [[] for _ in TABLES]
    seq, result = 0, []
    for _ in range(BATCHES):
        batch = []
        for _ in range(rng.randint(0, 4)):
            seq += 1
            table = rng.choice((0, 0, 1, 2))
            row: Row = tuple(rng.randint(0, 2) for _ in range(len(list(TABLES.values())[table])))
            again = bool(came[table]) and rng.random() < 0.6
            if again:
                row = rng.choice(came[table])
            retracts = again and rng.random() < (0.2 if table == 0 else 0.6)
            came[table].append(row)
            batch.append(Change(table, RowKind.DELETE if retracts else RowKind.INSERT, row, seq))
        result.append(batch)
    return result


def _line(change: Change) -> Line:
    table, columns = list(TABLES.items())[change.side]
    row = dict(zip(columns, change.row, strict=True))
    if table == "u":
        return (table, "+U", row) if change.sign > 0 else (table, "-D", {"k": row["k"]})
    return table, "+I" if change.sign > 0 else "-D", row
