"""Allowed lateness: rows that are later than the watermark allows are still accepted, and correct emitted results.

The model is that of `test_time_oracle`. In it a window closes when the watermark has passed its end by the allowed
lateness. With `emit: final` its row is emitted when the watermark passes the end, and is updated from then on.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from pathlib import Path

import pytest

from rowkind.service.plan.errors import PlanError
from tests.oracle.cuts import agrees, as_lines, as_rows, cut
from tests.oracle.test_time_oracle import (
    FORMS,
    GROUPED,
    JOINED,
    LEFT,
    SESSIONS,
    TOP,
    VALUES,
    Model,
    SessionModel,
    changes_of,
    running,
    sessions_agree,
)
from tests.seeds import drawn, seeds
from tests.trying import folded

LATENESS = timedelta(seconds=20)
ALLOWED = "delay: 4s, allowed_lateness: 20s"
CASES = [(GROUPED, "panes"), (VALUES, "hop"), (TOP, "tumble"), (LEFT, "tumble")]


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize(("sql", "windows"), CASES)
def test_late_rows_correct_windows_as_long_as_they_are_allowed(
    tmp_path: Path, sql: str, windows: str, mode: str, emit: str
) -> None:
    """After every batch, with restarts, late rows are included; with `emit: final` rows appear at the watermark."""
    form = FORMS[windows]
    tables = ["a", "b"] if "{b}" in sql else ["a"]
    late = 0
    for dice in drawn(f"lateness {sql} {windows} {mode} {emit}", seeds()):
        query = running(
            tmp_path, mode, sql.format(a=form.format("a"), b=form.format("b")), f"mode: retract, emit: {emit}", ALLOWED
        )
        model, oracle = Model(windows, LATENESS), sql.format(a="a", b="b")
        expected = functools.partial(model.after, oracle, tables, final=emit == "final")
        agrees(query, cut(dice, changes_of(dice, mode, 50)), expected)
        query.end()
        assert as_rows(query) == model.query(oracle)
        late += model.late
    assert late or len(tables) > 1, "some rows were late, and were taken"


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
def test_sessions_take_late_rows_as_long_as_they_are_allowed(tmp_path: Path, mode: str, emit: str) -> None:
    """A late row within the allowed lateness continues an ended session; in the end no state of the session is left."""
    for dice in drawn(f"lateness of sessions {mode} {emit}", seeds(2)):
        query = running(tmp_path, mode, SESSIONS["spark"], f"mode: retract, emit: {emit}", ALLOWED)
        model = SessionModel(LATENESS)
        sessions_agree(query, model, dice, changes_of(dice, mode, 50), final=emit == "final")
        query.end()
        assert as_rows(query) == model.result(final=False)


NEAR = "ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '3' SECOND AND a.ts + INTERVAL '5' SECOND"
KEPT_LONGER = {
    "window": GROUPED.format(a=FORMS["hop"].format("a")),
    "session": SESSIONS["flink"],
    "interval": f"SELECT a.id, b.id AS other FROM a JOIN b {NEAR}",
    "interval, padded": f"SELECT a.id, b.id AS other FROM a LEFT JOIN b {NEAR}",
    "interval, none": f"SELECT a.id FROM a LEFT ANTI JOIN b {NEAR}",
    "as of": "SELECT a.id, b.id AS other FROM a ASOF LEFT JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
    "window join": JOINED.format(a=FORMS["tumble"].format("a"), b=FORMS["tumble"].format("b")),
}


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("name", KEPT_LONGER)
def test_what_may_be_late_is_kept_as_by_a_longer_delay(tmp_path: Path, name: str, mode: str) -> None:
    """If no operator waits for the watermark itself, allowed lateness acts like a correspondingly longer delay."""
    sql = KEPT_LONGER[name]
    sink = "mode: retract" if name.startswith("interval") else "mode: retract, emit: changes"
    for dice in drawn(f"longer {name} {mode}", seeds()):
        queries = [running(tmp_path, mode, sql, sink, delay) for delay in (ALLOWED, "delay: 24s")]
        for batch in cut(dice, changes_of(dice, mode, 60)):
            for query in queries:
                query.batch(0, *as_lines(batch))
                query.restart()
            assert queries[0].view == queries[1].view, batch
        for query in queries:
            query.end()
        assert queries[0].view == queries[1].view


def test_what_is_corrected_is_no_append_stream(tmp_path: Path) -> None:
    """An append sink refuses a query with allowed lateness and names two ways out; without it the query is accepted."""
    sql = GROUPED.format(a=FORMS["tumble"].format("a"))
    running(tmp_path, "append", sql, "mode: append")
    with pytest.raises(PlanError) as caught:
        running(tmp_path, "append", sql, "mode: append", ALLOWED)
    assert (
        "sinks.result.mode: an append sink accepts only inserts, but rows of a may be late by `allowed_lateness`, and "
        "would correct rows that have been emitted: remove `allowed_lateness` from the watermark, so that late rows "
        "are dropped, or set the sink's `mode` to upsert or retract"
    ) in str(caught.value)


@pytest.mark.parametrize("mode", ["retract", "upsert"])
def test_what_comes_after_a_row_is_final_leaves_it_as_it_is(tmp_path: Path, mode: str) -> None:
    """Each window row is in the append topic once; a late row is dropped, and a late delete retracts nothing."""
    table = {
        "mode": mode,
        "columns": {"k": "INT NOT NULL", "at": "TIMESTAMP NOT NULL"},
        "primary_key": "k",
        "watermark": {"column": "at", "delay": "1m"},
    }
    rows = [("+I", 1, "12:00"), ("+I", 2, "12:30"), ("-D", 1, "12:00"), ("+I", 3, "12:05"), ("-D", 2, "12:30")]
    changes = [{"table": "a", "op": op, "row": {"k": key, "at": f"2026-01-01T{at}:00Z"}} for op, key, at in rows]
    sql = "SELECT k, window_end FROM TABLE(HOP(TABLE a, DESCRIPTOR(at), INTERVAL '10' MINUTE, INTERVAL '20' MINUTE))"
    found = folded(tmp_path, sql, {"a": table}, changes, sink={"mode": "append"})
    assert sorted((row["k"], row["window_end"][11:16]) for row in found) == [(1, "12:10"), (1, "12:20")]
