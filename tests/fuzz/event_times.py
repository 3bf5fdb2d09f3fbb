"""The event times and the processing times of random changes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.changelogs import Change, Row, Rows
from tests.fuzz.schemas import Table

_BEGIN = np.datetime64("2026-01-01T00:00:00", "ms")
_STEPS = (0, 0, 0, 1, 5, 5, 10, 20)
_OPEN = "30d"
_SMALL = 0.7
_SAME_TIME = 0.3


@dataclass(frozen=True)
class Pace:
    """How event times advance, in minutes.

    `disorder` is how far a row may be behind others; None for any order. `delay` is the delay of the watermark; None
    for no watermark. With `own_deletes`, a retraction has its own time if it could also have that of its row.
    """

    disorder: int | None
    delay: str | None
    own_deletes: bool = False

    @classmethod
    def random(cls, rng: random.Random, *, clocked: bool) -> Pace:
        """Return a random pace; mostly windows close, and few rows or none are late."""
        own_deletes = rng.random() < 0.25
        form = rng.random()
        if form < 0.15:
            return cls(None, None, own_deletes)
        if clocked or form < 0.35:
            return cls(None, _OPEN, own_deletes)
        disorder = rng.choice((0, 0, 5, 15))
        return cls(disorder, f"{disorder + rng.choice((0, 0, 15))}m", own_deletes)

    def watermark(self, table: Table) -> dict[str, Any]:
        """Return the `watermark` setting of a table's entry."""
        timed = any(each.name == "ts" for each in table.columns)
        return {"watermark": {"column": "ts", "delay": self.delay}} if timed and self.delay is not None else {}


def with_event_times(
    rng: random.Random, tables: Sequence[Table], changes: Sequence[Change], pace: Pace
) -> list[Change]:
    """Return the changes with new times: those of rows advance, and a retraction has the time of its row."""
    by_name = {each.name: each for each in tables}
    rows = {each.name: Rows(each.primary_key, tuple(column.name for column in each.columns)) for each in tables}
    times: dict[tuple[str, tuple[Any, ...]], list[str]] = defaultdict(list)
    last: dict[tuple[str, tuple[Any, ...]], str] = {}
    now = 60
    found = []
    for each in changes:
        table, row = by_name[each["table"]], each["row"]
        identity = table.name, rows[table.name].identity(row)
        own = times[identity]
        now += rng.choice(_STEPS)
        time = _minute(now - rng.randint(0, 90 if pace.disorder is None else pace.disorder))
        if row.get("ts") is None:
            # A delete with only a key, or a row without a time.
            if each["op"] in ("-U", "-D"):
                del own[:1]
            elif table.primary_key:
                own[:] = [time]
            found.append(each)
            continue
        if each["op"] in ("+I", "+U"):
            if table.primary_key:
                time = last.get(identity, time) if rng.random() < _SAME_TIME else time
                own.clear()
            last[identity] = time
            own.append(time)
        elif own:
            before = own.pop(0)
            alters = pace.own_deletes and table.primary_key and not table.exact
            time = time if alters and time > before else before
        found.append({**each, "row": _with_time(row, time)})
    return found


def with_small_updates(rng: random.Random, tables: Sequence[Table], changes: Sequence[Change]) -> list[Change]:
    """Return the changes, with most updates of a row with a key altering one column or none."""
    rows = {each.name: Rows(each.primary_key, tuple(column.name for column in each.columns)) for each in tables}
    found = []
    for each in changes:
        own, row = rows[each["table"]], each["row"]
        at = own.find(row) if own.primary_key else None
        if at is not None:
            before = own.live[at][1]
            if each["op"] in ("-U", "-D"):
                row = {name: before[name] for name in row}
            elif rng.random() < _SMALL:
                altered = rng.choice((None, *(name for name in own.columns if name not in own.primary_key)))
                row = {name: row[name] if name == altered else before[name] for name in row}
        own.apply(each["op"], row, 0)
        found.append({**each, "row": row})
    return found


def with_clock(rng: random.Random, changes: Sequence[Change], *, one_by_one: bool) -> list[Change]:
    """Return the changes with the time of their batch; with `one_by_one` every change has a different time."""
    at = int((_BEGIN + np.timedelta64(60, "m")).astype(np.int64))
    found = []
    for each in changes:
        at += 60_000 * rng.choice((0, 0, 0, 1, 10, 30)) + one_by_one
        found.append({**each, "at": at})
    return found


def _minute(minute: int) -> str:
    return f"{_BEGIN + np.timedelta64(max(0, minute), 'm')}Z"


def _with_time(row: Mapping[str, Any], time: str) -> Row:
    return {**row, "ts": time}
