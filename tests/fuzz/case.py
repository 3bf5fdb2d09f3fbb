"""A case: a whole job with its changes, in the form of a JSON file, and how a seed makes one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from rowkind.service.job.model import Job
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import PlanError, Refusal
from rowkind.service.plan.pipeline import logical, plan
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.query.trial import TrialBatch, read
from tests.fuzz.changelogs import Change, random_changes
from tests.fuzz.expiring import random_expiring, random_lives
from tests.fuzz.queries import random_query
from tests.fuzz.schemas import random_tables
from tests.fuzz.windows import View, Windowed, random_windows, seen_as, with_times, with_watermarks

SINK = "o"
_CLOCK_PUT_BACK = (5_000, 5_000, 3_000, 4_000, 9_000, 9_000, 1_000)
_SKEWED = 0.2
_WINDOWED = 0.15
_ALIVE = 0.12


@dataclass(frozen=True)
class Case:
    """A query, the entries of its tables and of its sink in the job file, and changes in batches of `batch_rows`.

    `ttl` and `on_expire` are settings of the job; with `on_expire` there is a TTL. `clock` has the time of each batch
    in ms, if time matters; the last time applies to all further batches. `windows` are views of the job.
    """

    title: str
    sql: str
    tables: Mapping[str, Mapping[str, Any]]
    sink: Mapping[str, Any]
    batch_rows: int
    changes: Sequence[Change]
    ttl: str | None = None
    clock: Sequence[int] = ()
    windows: Sequence[View] = ()
    on_expire: str | None = None

    @property
    def job_file(self) -> dict[str, Any]:
        """Return the contents of the job file."""
        said = {"ttl": self.ttl, "on_expire": self.on_expire}
        of_job = {name: value for name, value in said.items() if value is not None}
        views = {each.name: each.sql for each in self.windows}
        return {"job": "fuzz", "tables": self.tables, "views": views, "sinks": self.sinks} | of_job

    @property
    def job(self) -> Job:
        """Return the job. Raises pydantic's ValidationError."""
        return Job.model_validate(self.job_file)

    @property
    def sinks(self) -> dict[str, Any]:
        """Return the entry of the sink."""
        return {SINK: {**self.sink, "sql": self.sql}}

    @property
    def lines(self) -> list[str]:
        """Return the changes as lines of a file."""
        return [json.dumps(each) for each in self.changes]

    @property
    def parts(self) -> list[Sequence[Change]]:
        """Return the changes of each batch."""
        return [self.changes[at : at + self.batch_rows] for at in range(0, len(self.changes), self.batch_rows)]

    def batches(self, job: Job) -> list[TrialBatch]:
        """Return the changes as the engine takes them. Raises InputError."""
        return read(job, self.lines, "changes.jsonl", self.batch_rows)

    def now(self, batch: int) -> int:
        """Return the time of a batch in ms; without a clock, times that also go back and stand still."""
        if not self.clock:
            return _CLOCK_PUT_BACK[batch % len(_CLOCK_PUT_BACK)]
        return self.clock[min(batch, len(self.clock) - 1)]

    def document(self, **more: Any) -> dict[str, Any]:
        """Return the contents of the JSON file."""
        time = {"ttl": self.ttl, "on_expire": self.on_expire, "clock": list(self.clock)}
        time["windows"] = [asdict(each) for each in self.windows if isinstance(each, Windowed)]
        return {
            "title": self.title,
            "sql": self.sql,
            **{name: value for name, value in time.items() if value},
            "tables": self.tables,
            "sink": self.sink,
            "batch_rows": self.batch_rows,
            "changes": list(self.changes),
            **more,
        }

    @classmethod
    def load(cls, path: Path) -> Case:
        """Return the case in a file, without its expectations."""
        document = json.loads(path.read_text())
        clock = document.get("clock", ())
        windows = [Windowed(**each) for each in document.get("windows", ())]
        named = ("title", "sql", "tables", "sink", "batch_rows", "changes")
        of_job = document.get("ttl"), clock, windows, document.get("on_expire")
        return cls(*(document[name] for name in named), *of_job)


def random_case(seed: int) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    if rng.random() < 0.08:
        return Case(f"seed {seed}", sink={"mode": "retract"}, **random_expiring(rng))
    tables = random_tables(rng)
    windows, dice = [], random.Random(f"windows {seed}")
    if dice.random() < _WINDOWED:
        tables = with_times(dice, tables)
        windows = random_windows(dice, tables)
    # Each view is listed twice besides its table, so that most queries read a view.
    sql = random_query(rng, [*tables, *(seen_as(each, tables) for each in windows for _ in range(2))])
    changes = random_changes(rng, tables, rng.choice((8, 16, 24, 36)))
    rows = rng.choice((1, 3, 5, 8, 50)) if len(changes) < 12 else rng.choice((5, 8, 12, 20, 50))
    entries = with_watermarks(dice, {each.name: each.entry for each in tables}, windows)
    case = Case(f"seed {seed}", sql, entries, {"mode": "retract"}, rows, changes, windows=windows)
    case = replace(case, sink=random_sink(rng, case))
    alive = random.Random(f"alive {seed}")
    if not windows and alive.random() < _ALIVE:
        case = replace(case, **random_lives(alive, case.tables, len(case.parts)))
    return _with_skew(random.Random(f"skew {seed}"), case)


def _with_skew(rng: random.Random, case: Case) -> Case:
    """Return the case, sometimes with a SKEW hint that spreads a hot key, if the planner accepts it."""
    if rng.random() > _SKEWED:
        return case
    tree = sqlglot.parse_one(case.sql, read="spark")
    selects = [each for each in tree.find_all(exp.Select) if not each.args.get("hint")]
    named = [(select, each.alias) for select in selects for each in _relations(select) if each.alias]
    if not named:
        return case
    select, alias = rng.choice(named)
    select.hint(f"SKEW('{alias}' = {rng.choice((2, 3, 8))})", dialect="spark", copy=False)
    skewed = replace(case, sql=tree.sql("spark"))
    try:
        plan(skewed.job, SINK)
    except PlanError:
        return case
    return skewed


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    if (from_ := select.args.get("from_")) is not None:
        yield from_.this
    yield from (each.this for each in select.args.get("joins") or ())


def random_sink(rng: random.Random, case: Case) -> Mapping[str, Any]:
    """Return a sink: mostly in mode retract, which accepts any query, else in a mode that may refuse the query."""
    form = rng.random()
    if form < (0.5 if all(each["mode"] == "append" for each in case.tables.values()) else 0.01):
        return {"mode": "append"} | ({"emit": "changes"} if case.windows else {})
    if form > 0.7:
        return {"mode": "retract"}
    try:
        root = logical(case.job, SINK).root
    except (PlanError, Refusal):
        return {"mode": "retract"}
    keys = in_order(unique_keys(root), root)
    known = columns(root)
    keys = [key for key in keys if key and not any(known[column].nullable for column in key)]
    key = rng.choice(keys) if keys else rng.sample(list(known), 1) if rng.random() < 0.01 else ()
    return {"mode": "upsert", "key": list(key)} if key else {"mode": "retract"}
