"""Lookups by processing time in SQL: a left row matches all right rows that satisfy ON at the end of its batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clocked import Clocked, Line, job_of
from tests.seeds import batches, drawn, seeds

Row = dict[str, Any]

_JOB = """
job: j
tables:
  a: {{topic: a, mode: {mode}, primary_key: [id], columns: {{id: BIGINT NOT NULL, k: INT, v: INT}}}}
  b: {{topic: b, mode: upsert, primary_key: [id], columns: {{id: BIGINT NOT NULL, k: INT, v: INT NOT NULL}}}}
sinks:
  result: {{topic: r, mode: retract, sql: "SELECT a.id AS a, b.id AS b, b.v FROM a {join} ON {on}"}}
"""


@dataclass(frozen=True)
class Lookup:
    """The condition in ON, in SQL and in Python."""

    on: str
    holds: Callable[[Row, Row], bool]
    padded: bool


LOOKUPS = (
    Lookup("a.k = b.k", lambda a, b: a["k"] == b["k"], padded=False),
    Lookup("a.k = b.k", lambda a, b: a["k"] == b["k"], padded=True),
    Lookup("a.k = b.k AND a.v < b.v", lambda a, b: a["k"] == b["k"] and a["v"] < b["v"], padded=False),
    Lookup("a.k = b.k AND b.v > 3", lambda a, b: a["k"] == b["k"] and b["v"] > 3, padded=True),
    Lookup("a.k = b.id", lambda a, b: a["k"] == b["id"], padded=True),
    Lookup("a.k = b.id AND a.v < b.v", lambda a, b: a["k"] == b["id"] and a["v"] < b["v"], padded=True),
)


@dataclass
class Model:
    """The rows of both tables by id, and the right rows that each left row matched."""

    lookup: Lookup
    right: dict[int, Row] = field(default_factory=dict)
    met: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)

    def batch(self, lines: list[Line]) -> None:
        """Apply the right rows of a batch, then the left ones."""
        for table, op, row in lines:
            if table == "b" and op == "-D":
                self.right.pop(row["id"], None)
            elif table == "b":
                self.right[row["id"]] = dict(row)
        for table, op, row in lines:
            if table == "a" and op == "-D":
                del self.met[row["id"]]
            elif table == "a":
                there = [b for b in self.right.values() if row["k"] is not None and b["k"] is not None]
                found = [(b["id"], b["v"]) for b in there if self.lookup.holds(dict(row), b)]
                self.met[row["id"]] = found or [(None, None)] * self.lookup.padded

    @property
    def result(self) -> Counter[tuple[Any, ...]]:
        """Return the rows in the output."""
        return Counter((a, *each) for a, met in self.met.items() for each in met)


def lines(dice: random.Random, *, only_comes: bool) -> Iterator[list[Line]]:
    """Yield batches of left rows that are inserted and perhaps deleted later, and of right rows that change."""
    live: list[Row] = []
    number = 0
    for _ in range(batches(10)):
        dice.shuffle(live)
        goes = 0 if only_comes else dice.randint(0, min(3, len(live)))
        batch: list[Line] = [("a", "-D", row) for row in live[:goes]]
        del live[:goes]
        for _ in range(dice.randint(0, 8)):
            key = None if dice.random() < 0.1 else dice.randint(0, 3)
            if dice.random() < 0.5:
                op = dice.choice(("+I", "+U", "-D"))
                batch.append(("b", op, {"id": dice.randint(0, 5), "k": key or 0, "v": dice.randint(0, 6)}))
            else:
                number += 1
                batch.append(("a", "+I", {"id": number, "k": key, "v": dice.randint(0, 6)}))
        live += [dict(row) for table, op, row in batch if (table, op) == ("a", "+I")]
        yield batch


@pytest.mark.parametrize("only_comes", [False, True])
@pytest.mark.parametrize("lookup", LOOKUPS, ids=lambda each: f"{each.on}, {each.padded}")
def test_a_row_meets_all_for_which_on_holds(lookup: Lookup, only_comes: bool, tmp_path: Path) -> None:
    """After every batch, each current left row has the right rows that satisfied ON when it arrived."""
    join, mode = f"{'LEFT ' * lookup.padded}JOIN b FOR SYSTEM_TIME AS OF PROCTIME()", "retract, exact: true"
    job = job_of(tmp_path, _JOB.format(mode="append" if only_comes else mode, join=join, on=lookup.on))
    for dice in drawn(f"lookup in SQL, {lookup.on}, {lookup.padded}, {only_comes}", seeds(5)):
        query, model = Clocked.of(job), Model(lookup)
        for now, batch in enumerate(lines(dice, only_comes=only_comes)):
            query.batch(now, *batch)
            model.batch(batch)
            found = Counter({tuple(dict(row).values()): count for row, count in query.view.items()})
            assert found == model.result, batch
