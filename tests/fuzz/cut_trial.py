"""A case of the split law run in one setting: the contents of its sinks at the end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes, Int64s, Rows
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from rowkind.service.query.trial import TrialBatch, read
from tests.fuzz.case import SINK
from tests.fuzz.changelogs import breaches
from tests.fuzz.cut_case import CutCase, Ends, with_unread
from tests.fuzz.running import breach
from tests.sizes import sized

ACCUSED = "a promise that is kept is said to be broken"


@dataclass(frozen=True)
class Setting:
    """One way to compute a case: where batches end, which sinks the job has, the sizes, and additional columns."""

    ends: Ends
    sinks: tuple[str, ...] = (SINK,)
    small: bool = False
    unread: bool = False

    def __str__(self) -> str:
        said = ["small segments"] * self.small + ["unread columns"] * self.unread
        return ", ".join((f"sinks {'+'.join(self.sinks)}, batches that end at {list(self.ends)}", *said))


Observed = tuple[Any, Any]
"""The contents of a sink at the end of the input and after all windows closed: a bag of payloads, or a list."""


class ProblemError(Exception):
    """A result that is never allowed; the text is the reason of the finding."""


class LateError(Exception):
    """A row arrived late."""


@dataclass(frozen=True)
class _Planned:
    """A case in the form that the engine takes. Cases that differ only in their changes share job and plans."""

    case: CutCase

    def sink(self, name: str) -> PhysicalSink:
        """Return the plan of a sink. Raises PlanError."""
        sinks = {name: self.case.sinks[name]}
        found = _plan(json.dumps(self.case.job_file | {"sinks": sinks}), name)
        if isinstance(found, PlanError):
            raise found
        return found

    @cached_property
    def rows(self) -> dict[str, tuple[Int64s, Rows]]:
        """Return for each table the positions of its changes among all changes, and the changes."""
        lines = [{name: each[name] for name in ("table", "op", "row")} for each in self.case.changes]
        sinks = {SINK: {"mode": "retract", "sql": ""}}
        (whole,) = read(_job(json.dumps(self.case.job_file | {"sinks": sinks})), lines, "changes", len(lines) + 1)
        places = {name: [ArrivalNumber.of(seq).offset - 1 for seq in rows.seq.tolist()] for name, rows in whole.items()}
        return {name: (np.array(places[name], np.int64), rows) for name, rows in whole.items()}


@lru_cache(maxsize=64)
def _job(file: str) -> Job:
    return Job.model_validate_json(file)


@lru_cache(maxsize=64)
def _plan(file: str, name: str) -> PhysicalSink | PlanError:
    """Return the plan of a sink, or the error."""
    try:
        return plan(_job(file), name)
    except PlanError as error:
        return error


class Trial:
    """A case, with its results in the settings tried so far."""

    def __init__(self, case: CutCase) -> None:
        self.case = case
        self._planned = {False: _Planned(case)}
        self._observed: dict[Setting, dict[str, Observed]] = {}

    def sink(self, name: str, *, unread: bool = False) -> PhysicalSink:
        """Return the plan of a sink. Raises PlanError."""
        return self._plan(unread=unread).sink(name)

    def _plan(self, *, unread: bool) -> _Planned:
        if unread not in self._planned:
            self._planned[unread] = _Planned(with_unread(self.case))
        return self._planned[unread]

    def observed(self, setting: Setting) -> dict[str, Observed]:
        """Return the contents of each sink in this setting. Raises PlanError, LateError and ProblemError."""
        if setting not in self._observed:
            with sized(2 if setting.small else None, releases=False):
                self._observed[setting] = self._observe(setting)
        return self._observed[setting]

    def batches(self, setting: Setting) -> list[TrialBatch]:
        """Return the changes of each batch, with its clock."""
        found, begin = [], 0
        for end in setting.ends:
            batch = TrialBatch()
            batch.clock = self.case.times[end - 1]
            for table, (places, rows) in self._plan(unread=setting.unread).rows.items():
                first, last = np.searchsorted(places, [begin, end])
                if first < last:
                    batch[table] = rows.take(np.arange(first, last))
            found.append(batch)
            begin = end
        return found

    def _observe(self, setting: Setting) -> dict[str, Observed]:
        sinks = [self.sink(name, unread=setting.unread) for name in setting.sinks]
        late: list[int] = []
        accused: list[str] = []
        engine = MemoryEngine(
            *sinks,
            late=lambda _node, changes: late.append(len(changes)),
            broken=lambda promise: accused.append(str(promise)),
        )
        results = {sink.name: Result(sink) for sink in sinks}
        now = 0
        for batch in self.batches(setting):
            now = batch.clock or 0
            for name, changes in engine.batch(batch, now).items():
                results[name].take(changes)
        held = {name: result.now() for name, result in results.items()}
        if any(clock.tables or clock.processing for clock in engine.graph.clocks):
            for name, changes in engine.batch(TrialBatch(), now, ended=True).items():
                results[name].take(changes)
        if late or _has_late_delete(self.case):
            raise LateError
        if accused and not breaches(self.case.tables, self.case.changes):
            raise ProblemError(ACCUSED)
        return {name: (held[name], result.now()) for name, result in results.items()}


def _has_late_delete(case: CutCase) -> bool:
    """Return whether a version may be deleted from a time that has already been passed.

    Such a delete still ends the version for rows that the watermark has not passed, and is therefore not dropped as
    late.
    """
    columns = {name: table["watermark"]["column"] for name, table in case.tables.items() if "watermark" in table}
    reached = dict.fromkeys(columns, "")
    if " AS OF " not in case.sql or not columns:
        return False
    for change in case.changes:
        at = str(change["row"].get(columns.get(change["table"])) or "")
        if change["op"] == "-D" and at <= min(reached.values()):
            return True
        if change["table"] in columns:
            reached[change["table"]] = max(reached[change["table"]], at)
    return False


class Result:
    """The contents of a sink, batch by batch."""

    def __init__(self, sink: PhysicalSink) -> None:
        self._sink = sink
        self._fold = Fold(keyed=sink.mode == "upsert")
        self._listed: list[bytes] = []

    def take(self, changes: Changes) -> None:
        """Add the changes of one batch. Raises ProblemError."""
        if problem := breach(self._sink, changes):
            raise ProblemError(problem)
        if self._sink.ordered:
            self._listed += changes.payload.to_pylist()
        self._fold.apply(changes)

    def now(self) -> Any:
        """Return the current contents. Raises ProblemError."""
        try:
            payloads = self._fold.payloads
        except AssertionError as error:
            raise ProblemError(str(error)) from None
        return list(self._listed) if self._sink.ordered else Counter(payloads)
