"""Versioned tables with any split into batches: the split does not change which version a left row matches.

The model is a few lines over the changes in their order: by key and time, the row that is valid from then on, or an end
marker. No row is late: changes are out of order by less than the delay. A delete carries its row with its own time. In
an upsert table it carries only the key. It then ends the key where its newest version begins, or at its table's mark if
that is later and both sides have watermarks.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.clocked import Clocked, Line, job_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "columns: {id: BIGINT, k: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}"
SQL = "SELECT a.id, b.id AS other FROM a {left} JOIN b FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k"
JOB = """
job: j
tables:
  a: {{mode: {left}, watermark: {{column: ts, delay: {delay}s}}, {columns}}}
  b: {{mode: {mode}, primary_key: [k], watermark: {{column: ts, delay: {delay}s}}, {columns}}}
sinks:
  result: {{mode: retract, emit: {emit}, sql: "{sql}"}}
"""
HOUR = 3600


@pytest.mark.parametrize(
    ("mode", "delay", "emit"),
    [("retract", 5, "changes"), ("retract", HOUR, "changes"), ("retract", 5, "final"), ("retract", HOUR, "final")]
    + [("upsert", delay, emit) for delay in (0, 5, HOUR) for emit in ("changes", "final")],
)
def test_what_a_left_row_meets_does_not_depend_on_the_cut(tmp_path: Path, mode: str, delay: int, emit: str) -> None:
    """Batches of 1, of 2, of all changes and of random sizes give the model's result."""
    for dice in drawn(f"{mode} {delay} {emit}", seeds(3)):
        padded = dice.random() < 0.5
        left = "retract" if delay == HOUR and dice.random() < 0.5 else "append"
        changes = changes_of(dice, mode, left, delay)
        expected = model(changes, mode, timedelta(seconds=delay), padded=padded)
        sql = SQL.format(left="LEFT" if padded else "")
        text = JOB.format(left=left, mode=mode, delay=delay, columns=COLUMNS, emit=emit, sql=sql)
        for sizes in ((1,), (2,), (len(changes),), tuple(dice.randint(1, 9) for _ in range(50))):
            query = Clocked.of(job_of(tmp_path, text))
            rest = changes
            for size in itertools.cycle(sizes):
                query.batch(0, *rest[:size])
                rest = rest[size:]
                if not rest:
                    break
            query.end()
            found = Counter((row["id"], row["other"]) for row in query.result)
            assert found == expected, f"batches of {sizes}: {json.dumps(changes)}"


def changes_of(dice: random.Random, mode: str, left: str, delay: int) -> list[Line]:
    """Return changes of both tables, out of order by no more than the delay.

    With a delay of an hour there are also deletes with the time of their row, and deletes of left rows.
    """
    found: list[Line] = []
    there: dict[str, dict[int, dict[str, Any]]] = {"a": {}, "b": {}}
    for id_ in range(50):
        # If changes must be in order, no two of them have the same time.
        now = START + timedelta(seconds=dice.randint(0, 60) if delay == HOUR else id_ + 1)
        ts = now - timedelta(seconds=dice.randint(0, min(delay, 4)))
        table, key = dice.choice("abb"), dice.randint(1, 3)
        rows = there[table]
        row = {"id": id_, "k": key, "ts": ts.isoformat()}
        if table == "a":
            if left == "retract" and rows and dice.random() < 0.3:
                found.append(("a", "-D", rows.pop(dice.choice(list(rows)))))
            else:
                rows[id_] = row
                found.append(("a", "+I", row))
        elif dice.random() < 0.4 and (key in rows or dice.random() < 0.2):
            # Some deletes are for a key that does not exist.
            gone = rows.pop(key, row)
            own = delay == HOUR and dice.random() < 0.4
            found.append(("b", "-D", {"k": key} if mode == "upsert" else gone if own else {**gone, "ts": row["ts"]}))
        else:
            old = rows.get(key)
            rows[key] = row
            if old is not None and mode == "retract" and dice.random() < 0.8:
                # In Flink's documentation, both rows of an update have the time of the update.
                found.append(("b", "-U", old if dice.random() < 0.5 else {**old, "ts": row["ts"]}))
            found.append(("b", "+I" if old is None else "+U", row))
    return found


def model(changes: Sequence[Line], mode: str, delay: timedelta, *, padded: bool) -> Counter[tuple[int, int | None]]:
    """Return each left row that is left at the end, with the row of its key that is valid at its time."""
    versions: dict[int, dict[datetime, int | None]] = {1: {}, 2: {}, 3: {}}
    mark = datetime.min.replace(tzinfo=UTC)
    left: dict[int, dict[str, Any]] = {}
    for table, op, row in changes:
        if table == "a":
            if op == "+I":
                left[row["id"]] = dict(row)
            else:
                del left[row["id"]]
            continue
        of_key = versions[row["k"]]
        if op == "-D" and mode == "upsert":
            if of_key:
                of_key[max(mark, *of_key)] = None
            continue
        ts = datetime.fromisoformat(row["ts"])
        if op != "-U":
            of_key[ts] = None if op == "-D" else row["id"]
        mark = max(mark, ts - delay)
    found: Counter[tuple[int, int | None]] = Counter()
    for id_, row in left.items():
        of_key = versions[row["k"]]
        at = max((time for time in of_key if time <= datetime.fromisoformat(row["ts"])), default=None)
        other = None if at is None else of_key[at]
        if padded or other is not None:
            found[id_, other] += 1
    return found


def test_state_of_deleted_keys_goes(tmp_path: Path) -> None:
    """End markers of keys are evicted with the watermark, like old versions, so that state stays bounded."""
    text = JOB.format(left="append", mode="retract", delay=2, columns=COLUMNS, emit="changes", sql=SQL.format(left=""))
    query = Clocked.of(job_of(tmp_path, text))
    for number in range(60):
        at = [(START + timedelta(seconds=3 * number + each)).isoformat() for each in range(3)]
        row = {"id": number, "k": number, "ts": at[0]}
        query.batch(
            0, ("b", "+I", row), ("a", "+I", {**row, "ts": at[1]}), ("b", "-D", {**row, "ts": at[2]}),
            ("a", "+I", {**row, "id": -1, "ts": at[2]}),
        )  # fmt: skip
    assert {(row["id"], row["other"]) for row in query.result} == {(number, number) for number in range(60)}
    (size,) = query.engine.state.values()
    assert size.rows < 20, "2 seconds have a row or two"
