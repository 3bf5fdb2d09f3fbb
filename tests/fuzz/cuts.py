"""The cut law: the folded result of a job depends on none of the ways in which it may be computed.

A case is run in several settings, and the result of each query is the same in all of them:

    the cut      batches of 1, of 2, of all changes, and random ones; never across a change of the clock
    sizes        segments of the usual size, or of 2 rows
    beside       the query alone, or with a second one in the same job, with which it may share operators
    unread       the tables as they are, or with columns more that the query does not read

The result is what the changes fold to at the end of the input, and once more at the end of time, when all windows have
closed; of a sink in order of time it is the rows in their order. Rows that are late depend on the cut: such a case is
not compared. No setting may say that a table breaks a promise which its changes keep.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Changes, Int64s, Rows
from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.physical import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.run.memory import Fold, MemoryEngine
from rowkind.service.run.trial import TrialBatch, read
from tests.fuzz.case import SINK
from tests.fuzz.changelogs import breaches, rows_of
from tests.fuzz.cut_case import BESIDE, CutCase, Ends, with_unread
from tests.fuzz.oracle import Bag
from tests.fuzz.running import Outcome, bag_of, breach, failed, reason_of, shown
from tests.fuzz.small_sizes import small_sizes

CUT = "by the cut"
SIZES = "by the sizes of segments"
SHARED = "by another sink in the job"
UNREAD = "by columns that are not read"
ACCUSED = "a promise that is kept is said to be broken"
ARRIVAL = "not by the order of arrival"

_ALONE = (SINK,)


@dataclass(frozen=True)
class Setting:
    """One way to compute a case: where its batches end, which sinks the job has, and what else is said above."""

    ends: Ends
    sinks: tuple[str, ...] = _ALONE
    small: bool = False
    unread: bool = False

    def __str__(self) -> str:
        said = ["small segments"] * self.small + ["unread columns"] * self.unread
        return ", ".join((f"sinks {'+'.join(self.sinks)}, batches that end at {list(self.ends)}", *said))


Observed = tuple[Any, Any]
"""What a sink holds at the end of the input, and at the end of time: each a bag of payloads, or a list of them."""

_Planned = tuple[dict[str, PhysicalSink], dict[str, tuple[Int64s, Rows]]]
"""The sinks, and of each table where its changes are among all changes, and these."""


class _ProblemError(Exception):
    """What a result does that none may; its text is the reason of a finding."""


class _LateError(Exception):
    """A row came too late."""


class Trial:
    """A case with its plans and its changes as the engine takes them, each made when it is needed first."""

    def __init__(self, case: CutCase) -> None:
        self.case = case
        self._plans: dict[bool, _Planned] = {}
        self._observed: dict[Setting, dict[str, Observed]] = {}

    def planned(self, *, unread: bool = False) -> _Planned:
        """The plans and the changes. Raises PlanError."""
        if unread not in self._plans:
            case = with_unread(self.case) if unread else self.case
            job = case.job
            lines = [{name: each[name] for name in ("table", "op", "row")} for each in case.changes]
            (whole,) = read(job, lines, "changes.jsonl", len(lines) + 1)
            places = {
                name: np.array([ArrivalNumber.of(seq).offset for seq in rows.seq.tolist()]) - 1
                for name, rows in whole.items()
            }
            sinks = {name: plan(job, name) for name in job.sinks}
            self._plans[unread] = sinks, {name: (places[name], rows) for name, rows in whole.items()}
        return self._plans[unread]

    def observed(self, setting: Setting) -> dict[str, Observed]:
        """What each sink of the setting holds."""
        if setting not in self._observed:
            with small_sizes(on=setting.small):
                self._observed[setting] = self._observe(setting)
        return self._observed[setting]

    def _observe(self, setting: Setting) -> dict[str, Observed]:
        planned, rows = self.planned(unread=setting.unread)
        sinks = [planned[name] for name in setting.sinks]
        late: list[int] = []
        accused: list[str] = []
        engine = MemoryEngine(
            *sinks,
            late=lambda _node, changes: late.append(len(changes)),
            broken=lambda promise: accused.append(str(promise)),
        )
        results = {sink.name: _Result(sink) for sink in sinks}
        begin = 0
        for end in setting.ends:
            batch = TrialBatch()
            for table, (places, own) in rows.items():
                first, last = np.searchsorted(places, [begin, end])
                if first < last:
                    batch[table] = own.take(np.arange(first, last))
            for name, changes in engine.batch(batch, self.case.times[end - 1]).items():
                results[name].take(changes)
            begin = end
        held = {name: result.now() for name, result in results.items()}
        if any(clock.tables or clock.processing for clock in engine.graph.clocks):
            for name, changes in engine.batch(TrialBatch(), self.case.times[-1], ended=True).items():
                results[name].take(changes)
        if late:
            raise _LateError
        if accused and not breaches(self.case.tables, self.case.changes):
            raise _ProblemError(ACCUSED)
        return {name: (held[name], result.now()) for name, result in results.items()}


class _Result:
    """What a sink holds, batch by batch."""

    def __init__(self, sink: PhysicalSink) -> None:
        self._sink = sink
        self._fold = Fold(keyed=sink.mode == "upsert")
        self._listed: list[bytes] = []

    def take(self, changes: Changes) -> None:
        """Add the changes of one batch. Raises _ProblemError."""
        if problem := breach(self._sink, changes):
            raise _ProblemError(problem)
        if self._sink.ordered:
            self._listed += changes.payload.to_pylist()
        self._fold.apply(changes)

    def now(self) -> Any:
        """All of it. Raises _ProblemError."""
        try:
            payloads = self._fold.payloads
        except AssertionError as error:
            raise _ProblemError(str(error)) from None
        return list(self._listed) if self._sink.ordered else Counter(payloads)


@dataclass(frozen=True)
class Comparison:
    """Two settings that give the same, and what the result depends on if they do not."""

    reason: str
    one: Setting
    other: Setting


def look(case: CutCase) -> tuple[CutCase, Outcome]:
    """The outcome of a case in a few settings; of a finding that of many, and of the one query that has it alone.

    If the planner refuses the case for its second query, or for the mode of its sink, that is left out.
    """
    for each in (case, case.alone, replace(case.alone, sink={"mode": "retract"})):
        trial = Trial(each)
        outcome = _compared(trial, _few(trial))
        if outcome.verdict != "refused":
            break
    if not outcome.is_finding:
        return each, outcome
    alone = [] if each.beside is None else [each.alone, each.turned.alone]
    for smaller in (*alone, each):
        if (told := run(smaller)).is_finding:
            return smaller, told
    return each, outcome


def run(case: CutCase, only: str | None = None) -> Outcome:
    """The outcome in settings that differ in one thing each; `only` in those of one reason, if comparisons have it."""
    trial = Trial(case)
    comparisons = [each for each in _many(case) if only is None or only.startswith(each.reason)]
    return _compared(trial, comparisons or list(_many(case)))


def _few(trial: Trial) -> Iterator[Comparison]:
    """Settings that differ in several things at once, so that few of them look at all."""
    case = trial.case
    rng = random.Random(f"settings {case.title}")
    base = Setting(case.cut(len(case.changes)))
    yield Comparison(CUT, base, Setting(case.random_cut(rng, rng.choice((0.15, 0.3, 0.6))), small=rng.random() < 0.5))
    if rng.random() < 0.3:
        yield Comparison(CUT, base, Setting(case.cut(rng.choice((1, 1, 2)))))
    if case.beside is not None:
        both = Setting(case.random_cut(rng, 0.25), (SINK, BESIDE))
        yield Comparison(SHARED, base, both)
        yield Comparison(SHARED, Setting(base.ends, (BESIDE,)), both)
    if rng.random() < 0.3:
        yield Comparison(UNREAD, base, Setting(case.random_cut(rng, 0.25), unread=True))


def _many(case: CutCase) -> Iterator[Comparison]:
    """Settings that differ in one thing each."""
    cuts = list(case.cuts())
    for ends in cuts[1:]:
        yield Comparison(CUT, Setting(cuts[0]), Setting(ends))
    for ends in cuts:
        yield Comparison(SIZES, Setting(ends), Setting(ends, small=True))
    for ends in cuts if case.beside is not None else ():
        both = Setting(ends, (SINK, BESIDE))
        yield Comparison(SHARED, Setting(ends), both)
        yield Comparison(SHARED, Setting(ends, (BESIDE,)), both)
    for ends in cuts:
        yield Comparison(UNREAD, Setting(ends), Setting(ends, unread=True))


def _compared(trial: Trial, comparisons: Iterable[Comparison]) -> Outcome:
    try:
        if (outcome := _by_arrival(trial)) is not None:
            return outcome
        for each in comparisons:
            if (outcome := _difference(trial, each)) is not None:
                return outcome
    except PlanError as error:
        return Outcome("refused", reason_of(error.text))
    except _LateError:
        return Outcome("not compared", "late rows")
    except ExpressionError:
        return Outcome("not compared", "an expression fails")
    except _ProblemError as error:
        return Outcome("wrong", str(error))
    except Exception as error:  # noqa: BLE001 -- what it looks for
        return failed(error)
    return Outcome("agreed")


def _by_arrival(trial: Trial) -> Outcome | None:
    """The finding that a query of arrival is not what its model says."""
    case = trial.case
    if case.arrival is None:
        return None
    if case.sql != case.arrival.sql:
        return Outcome("not compared", "another query than that of the model")
    tables = rows_of(case.tables)
    for number, each in enumerate(case.changes):
        tables[each["table"]].apply(each["op"], each["row"], number)
    sink = trial.planned()[0][SINK]
    expected = case.arrival.result(tables)
    found = _bag(sink, trial.observed(Setting(case.cut(len(case.changes))))[SINK][1])
    return None if found == expected else Outcome("wrong", ARRIVAL, 0, expected, found)


def _difference(trial: Trial, comparison: Comparison) -> Outcome | None:
    one, other = comparison.one, comparison.other
    sinks = trial.planned()[0]
    names = [name for name in one.sinks if name in other.sinks]
    if one.unread != other.unread:
        wider = trial.planned(unread=True)[0]
        names = [name for name in names if sinks[name].value.names == wider[name].value.names]
    for name in names:
        pairs = zip(trial.observed(one)[name], trial.observed(other)[name], strict=True)
        for when, (left, right) in zip(("", ", at the end of time"), pairs, strict=True):
            if left == right:
                continue
            bags = _bag(sinks[name], left), _bag(sinks[name], right)
            if bags[0] != bags[1] or isinstance(left, list):
                settings = f"{one}; {other}"
                return Outcome("wrong", f"{comparison.reason}{when}", 0, *bags, settings=settings)
    return None


def _bag(sink: PhysicalSink, payloads: Any) -> Bag:
    return bag_of(sink, payloads if isinstance(payloads, list) else list(payloads.elements()))


def document(case: CutCase) -> dict[str, Any]:
    """The file of a finding: the case, and what it gives in two settings, or what is expected and found."""
    outcome = run(case)
    if outcome.verdict != "wrong" or not (outcome.expected or outcome.found):
        return case.document(got=outcome.reason)
    sink = plan(case.job, SINK)
    one, other = shown(outcome.expected, sink), shown(outcome.found, sink)
    if outcome.reason == ARRIVAL:
        return case.document(expected=one, got=other)
    return case.document(got={"differs": outcome.reason, "one": one, "other": other, "settings": outcome.settings})
