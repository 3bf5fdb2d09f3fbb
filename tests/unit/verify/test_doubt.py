"""Rows in doubt never count against a job, and faults in other rows are found: by hand, and in random cases."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.kafka.offsets import Offset
from rowkind.service.plan.pipeline import plan, source_table
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.verify.certainty import alive_from
from rowkind.service.verify.compare import AuditedPart
from rowkind.service.verify.errors import NotComparedError
from tests.seeds import drawn, seeds
from tests.unit.verify.judged import (
    BY_MINUTE,
    KEYED,
    LATEST,
    SECOND,
    SUMS,
    WATERMARK,
    Case,
    Opened,
    Row,
    item,
    outcome,
    packed,
    total,
)


def test_a_row_expires_a_ttl_after_its_batch(opened: Opened) -> None:
    """A group with a row that may have expired is not compared; a wrong group of younger rows is reported."""
    case = opened(SUMS, ttl="10s")
    case.batches = [(1, 0), (1, 5_000), (1, 14_000)]
    items = [item("a", 1), item("b", 2), item("c", 3)]
    assert outcome(case.audit(items, [total("b", 2), total("c", 3)])) == ("ok", 2, 0, 1, 0)
    assert outcome(case.audit(items, [total("a", 1), total("b", 9), total("c", 3)])) == ("differs", 2, 1, 0, 0)
    case.batches = [(1, 0), (1, 5_000), (1, 9_999)]
    assert outcome(case.audit(items, [total("b", 2), total("c", 3)])) == ("differs", 2, 1, 0, 0)


def test_rows_before_the_first_recorded_batch_may_have_expired(opened: Opened) -> None:
    """If earlier batches are not recorded, their times are unknown."""
    case = opened(SUMS, ttl="10s")
    case.batches = [(1, 0), (1, 1), (1, 2)]
    items = [item("a", 1), item("b", 2), item("c", 3)]
    assert outcome(case.audit(items, [total("b", 2), total("c", 3)], first=1)) == ("ok", 2, 0, 1, 0)


def test_a_gap_in_the_recorded_batches_is_in_doubt() -> None:
    """Rows of a batch that is not recorded, and may have been before the TTL, are in doubt."""
    batches = [
        Offset({("t", 0): 10}, {}, {("t", 0): 0}, 0, 0),
        Offset({("t", 0): 90, ("u", 0): 5}, {}, {("t", 0): 80, ("u", 0): 5}, 8, 20),
    ]
    assert alive_from(batches, "t", 20) == {0: 80}
    assert alive_from(batches, "u", 20) == {0: 5}
    assert alive_from(batches, "t", 21) is None


@pytest.mark.parametrize("counted", [(7, 5, -5), (7,), (7, 5), (7, -5)], ids=str)
def test_rows_in_doubt_whose_sum_is_zero_are_in_doubt(counted: tuple[int, ...], opened: Opened) -> None:
    """SUM is the same with both expired rows and without them, but not with one of them."""
    case = opened("SELECT k, SUM(v) AS s FROM items GROUP BY k", ttl="10s")
    case.batches = [(2, 0), (2, 20_000)]
    items = [item("a", 5), item("a", -5), item("a", 7), item("b", 1)]
    found = case.audit(items, [{"k": "a", "s": sum(counted)}, {"k": "b", "s": 1}])
    assert (found.verdict, found.compared.different) == ("ok", 0), found
    assert case.audit(items, [{"k": "a", "s": sum(counted)}, {"k": "b", "s": 2}]).compared.different == 1


def test_a_row_behind_the_watermark_may_have_been_late(opened: Opened) -> None:
    """A window with a row behind the watermark's bound is not compared; a wrong window without one is reported."""
    case = opened(BY_MINUTE, {"mode": "upsert", "key": ["k", "window_start"]}, **WATERMARK)
    items = [item("a", 1, 10), item("b", 2, 65), item("a", 3, 20), item("b", 4, 63.5), item("c", 5, 200)]

    def window(k: str, minute: int, s: int) -> Row:
        return {"k": k, "window_start": minute * 60 * SECOND, "s": s}

    right = [window("b", 1, 6), window("c", 3, 5)]
    for s in (1, 4):
        assert outcome(case.audit(items, [window("a", 0, s), *right]))[:3] == ("ok", 2 + (s == 4), 0)
    late = case.audit(items, [window("a", 0, 1), *right])
    assert late.notes == ("1 row not compared: rows may have been late in table items",)
    assert outcome(case.audit(items, [window("a", 0, 4), window("b", 1, 2), right[1]])) == ("differs", 2, 1, 0, 0)


def test_expired_rows_advance_the_watermark(opened: Opened) -> None:
    """A row is late behind the time of a row before it, even if that row has expired since."""
    case = opened(BY_MINUTE, {"mode": "upsert", "key": ["k", "window_start"]}, ttl="10s", **WATERMARK)
    case.batches = [(1, 0), (1, 20_000)]
    found = case.audit([item("a", 1, 300), item("b", 2, 10)], [])
    assert outcome(found) == ("ok", 0, 0, 2, 0)


def test_final_rows_are_missing_only_below_the_watermark(opened: Opened) -> None:
    """With `emit: final`, a window that is not closed may be missing; a closed one may not, and no row may be wrong."""
    sink = {"mode": "upsert", "key": ["k", "window_start"], "emit": "final"}
    case = opened(BY_MINUTE, sink, **WATERMARK)
    items = [item("a", 1, 10), item("a", 2, 70), item("a", 3, 130), item("a", 4, 131)]
    case.batches = [(3, 0), (1, 1)]
    rows = [{"k": "a", "window_start": minute * 60 * SECOND, "s": minute + 1} for minute in range(2)]
    assert outcome(case.audit(items, rows)) == ("ok", 2, 0, 0, 1)
    assert outcome(case.audit(items, rows[:1])) == ("differs", 1, 1, 0, 1)
    assert outcome(case.audit(items, [rows[0], rows[1] | {"s": 9}])) == ("differs", 1, 1, 0, 1)


@pytest.mark.parametrize("last", [0, 5])
def test_a_tie_with_a_zero_is_in_doubt(last: int, opened: Opened) -> None:
    """The sum of the latest values is the same without the tied rows and with the tied 0, but not with the tied 5."""
    case = opened(LATEST)
    items = [item("a", 7, g=1), item("a", 0, g=2), item("a", 5, g=2), item("b", 1)]
    for wrong in (False, True):
        found = case.audit(items, [{"k": "a", "s": 7 + last}, {"k": "b", "s": 1 + wrong}])
        assert (found.verdict, found.compared.different) == ("differs" if wrong else "ok", int(wrong)), found


def test_a_key_with_several_rows_is_in_doubt_beside_other_doubts(opened: Opened) -> None:
    """With `on_conflict`, keys with several rows are not compared, even if the rows surely count."""
    case = opened("SELECT k, v FROM items", {**KEYED, "on_conflict": "last"}, ttl="10s")
    case.batches = [(1, 0), (3, 20_000)]
    items = [item("z", 1), item("a", 1), item("a", 2), item("b", 3)]
    for kept in (1, 2):
        assert case.audit(items, [{"k": "a", "v": kept}, {"k": "b", "v": 3}]).verdict == "ok"
    assert case.audit(items, [{"k": "a", "v": 1}, {"k": "b", "v": 4}]).compared.different == 1


def test_since_leaves_out_rows_that_were_written_before(opened: Opened) -> None:
    """Wrong rows from before the time are not reported, later ones are, and so is every missing row."""
    case = opened(SUMS)
    items = [item(k, 1) for k in "abcd"]
    result = [total("a", 2), total("b", 1), total("c", 1), total("d", 2)]
    assert outcome(case.audit(items, result)) == ("differs", 2, 2, 0, 0)
    # The four rows were written at 0, 1, 2 and 3 seconds.
    case.part = AuditedPart(since=datetime.fromtimestamp(2, UTC).isoformat())
    assert outcome(case.audit(items, result)) == ("differs", 1, 1, 0, 0)
    assert outcome(case.audit(items, [total("a", 2), total("b", 1)])) == ("differs", 0, 2, 0, 0)
    case.part = replace(case.part, since=datetime.fromtimestamp(4, UTC).isoformat())
    assert outcome(case.audit(items, result)) == ("ok", 0, 0, 0, 0)


@dataclass
class Guess:
    """A random case: rows of which some have expired, or tied rows, and one of the results that are right."""

    dice: random.Random

    def items(self) -> list[Row]:
        """Return random rows; values of opposite sign are common."""
        keys = "abcdefgh"[: self.dice.randrange(1, 9)]
        return [
            item(
                self.dice.choice(keys), self.dice.choice([-5, 0, 5, 7]), self.dice.randrange(2), self.dice.randrange(3)
            )
            for _ in range(self.dice.randrange(1, 25))
        ]

    def part(self, rows: Sequence[Row]) -> list[Row]:
        """Return a random part of rows."""
        return [each for each in rows if self.dice.random() < 0.5]


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["k"]] = found.get(row["k"], 0) + row["v"]
    return found


def _result(sums: Mapping[str, int]) -> list[Row]:
    return [{"k": k, "s": s} for k, s in sums.items()]


def _planted(dice: random.Random, sums: dict[str, int], sure: Sequence[str]) -> str | None:
    """Change or remove the sum of a key that surely counts. Return the key, or None if there is none."""
    if not sure:
        return None
    k = dice.choice(sure)
    if dice.random() < 0.5:
        del sums[k]
    else:
        sums[k] += dice.choice([-1, 1])
    return k


def _judged(case: Case, items: Sequence[Row], sums: dict[str, int], sure: Sequence[str], dice: random.Random) -> None:
    """Assert that right sums are not reported, and that a fault in a key that surely counts is."""
    right = case.audit(items, _result(sums))
    assert right.verdict == "ok", right
    assert right.compared.equal >= len(sure)
    if (planted := _planted(dice, sums, sure)) is not None:
        wrong = case.audit(items, _result(sums))
        assert wrong.verdict == "differs"
        assert [(each.expected or {})["k"] for each in wrong.compared.first] == [planted]


def test_random_expired_rows(opened: Opened) -> None:
    """Whichever of the expired rows count, no difference is reported, and each fault in other keys is."""
    case = opened("SELECT k, SUM(v) AS s FROM items GROUP BY k", ttl="10s")
    for dice in drawn("expired", seeds(12)):
        guess = Guess(dice)
        old, young = guess.items(), guess.items()
        case.batches = [(len(old), 0), (len(young), 20_000)]
        sums = _sums([*guess.part(old), *young])
        sure = sorted({each["k"] for each in young} - {each["k"] for each in old})
        _judged(case, [*old, *young], sums, sure, dice)


def test_random_ties(opened: Opened) -> None:
    """Whichever of the tied rows is the latest, no difference is reported, and each fault in other keys is."""
    case = opened(LATEST)
    for dice in drawn("ties", seeds(12)):
        items = Guess(dice).items()
        groups: dict[tuple[str, int], list[Row]] = {}
        for row in items:
            groups.setdefault((row["k"], row["g"]), []).append(row)
        latest = {
            at: [row for row in rows if row["at"] == max(each["at"] for each in rows)] for at, rows in groups.items()
        }
        sums = _sums([dice.choice(rows) for rows in latest.values()])
        tied = {k for (k, _), rows in latest.items() if len(rows) > 1}
        _judged(case, items, sums, sorted(set(sums) - tied), dice)


WINDOWS: Mapping[str, Any] = {"mode": "upsert", "key": ["k", "window_start"]}
STREAMED: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "a TTL": (SUMS, KEYED, {"ttl": "10s"}),
    "a watermark": (BY_MINUTE, WINDOWS, WATERMARK),
    "emit final": (BY_MINUTE, {**WINDOWS, "emit": "final"}, WATERMARK),
    "append": (BY_MINUTE, {"mode": "append"}, WATERMARK),
    "a TTL and a watermark": (BY_MINUTE, WINDOWS, {"ttl": "10s", **WATERMARK}),
    "ties": (LATEST, KEYED, {}),
    "ties and a TTL": (LATEST, KEYED, {"ttl": "10s", "on_expire": "retract"}),
}


@pytest.mark.parametrize("name", STREAMED)
def test_the_engine_has_no_differences(name: str, opened: Opened) -> None:
    """The engine's own results over random batches never differ, and nearly all cases have rows that are compared."""
    sql, sink, table = STREAMED[name]
    case, equal = opened(sql, sink, **table), 0
    planned, declared = plan(case.topics.job, "result"), source_table(case.topics.job, "items").declared
    for dice in drawn(f"streamed {name}", seeds(8)):
        engine, now, at, results, case.batches = MemoryEngine(planned), 0, 0.0, [], []
        rows: list[Row] = []
        for _ in range(dice.randrange(1, 8)):
            now += dice.choice([1, 2_000, 6_000, 11_000])
            batch = Guess(dice).items()
            for row in batch:
                at += dice.choice([0, 1, 30])
                row["at"] = round((at - dice.choice([0, 0, 0, 1, 5, 90])) * SECOND)
            whole = packed(declared, [*rows, *batch])
            arrived = whole.filter(np.arange(len(whole)) >= len(rows))
            results.append(engine.batch({"items": arrived}, now)["result"].rows)
            rows += batch
            case.batches.append((len(batch), now))
        found = Rows.concat(results)
        found = Rows(
            found.kind, ArrivalNumber.pack(np.arange(len(found)), np.zeros(len(found), np.int64)), found.payload
        )
        audit = case.judge(packed(declared, rows), found)
        assert audit.verdict == "ok", audit
        equal += audit.compared.equal
    assert equal


def test_a_sum_of_rows_that_change_is_not_compared_once_they_expire(opened: Opened) -> None:
    """If the latest row expired, the next one is added to the sum without a retraction of the first."""
    case = opened(LATEST, ttl="10s")
    items = [item("a", 7, 1), item("a", 5, 2)]
    case.batches = [(1, 0), (1, 9_000)]
    assert outcome(case.audit(items, [{"k": "a", "s": 5}])) == ("ok", 1, 0, 0, 0)
    case.batches = [(1, 0), (1, 20_000)]
    with pytest.raises(NotComparedError, match="updated or deleted later may have expired before"):
        case.audit(items, [{"k": "a", "s": 12}])


def test_a_sum_over_a_table_with_updates_is_not_compared_once_rows_expire(opened: Opened) -> None:
    """If a row of the table expired before its update, the sum has the old row and the new one."""
    table = {"mode": "upsert", "primary_key": "g", "ttl": "10s"}
    case = opened("SELECT k, SUM(v) AS s FROM items GROUP BY k", **table)
    case.batches = [(1, 0), (1, 20_000)]
    with pytest.raises(NotComparedError, match="updated or deleted later may have expired before"):
        case.audit([item("a", 7, g=1), item("a", 5, g=1)], [{"k": "a", "s": 12}])
