"""The split law: the folded result of a job depends on none of the ways in which the job may be computed.

A case runs in several settings, and the result of each query must be the same in all of them:

- batches of 1, of 2, of all changes, and random ones, never across a change of the clock;
- segments of the usual size, or of 2 rows;
- the query alone, or with a second query in the same job, with which it may share operators;
- the tables as they are, or with additional columns that the query does not read.

The result is the fold of the changes at the end of the input, and again after all windows have closed. For a sink in
order of time the result is the list of rows. Which rows are late depends on the split, so that a case with late rows is
not compared. No setting may report a broken promise that the changes keep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rowkind.service.execute.expressions import ExpressionError
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from tests.fuzz.case import SINK
from tests.fuzz.changelogs import Rows, rows_of
from tests.fuzz.cut_case import BESIDE, CutCase
from tests.fuzz.cut_trial import LateError, ProblemError, Setting, Trial
from tests.fuzz.oracle import Bag
from tests.fuzz.running import Outcome, bag_of, failed, reason_of, shown

CUT = "by the cut"
SIZES = "by the sizes of segments"
SHARED = "by another sink in the job"
UNREAD = "by columns that are not read"
ARRIVAL = "not by the order of arrival"


@dataclass(frozen=True)
class Comparison:
    """Two settings that must give the same result, and the dependency that they show if they do not."""

    reason: str
    one: Setting
    other: Setting


def look(case: CutCase) -> tuple[CutCase, Outcome]:
    """Return the outcome in a few settings; for a finding, in many settings and of one query alone if possible."""
    trial = accepted(case)
    case, outcome = trial.case, _compared(trial, _few(trial))
    if not outcome.is_finding:
        return case, outcome
    alone = [] if case.beside is None else [case.alone, case.turned.alone]
    for each in (*alone, case):
        if (told := run(each)).is_finding:
            return each, told
    return case, outcome


def accepted(case: CutCase) -> Trial:
    """Return the case without the parts that the planner refuses: the sink's mode and order, or the second query."""
    trial = Trial(case)
    if _is_refused(trial, SINK):
        trial = Trial(replace(case, sql=case.sql.removesuffix(" ORDER BY ts"), sink={"mode": "retract"}))
    return Trial(trial.case.alone) if case.beside is not None and _is_refused(trial, BESIDE) else trial


def _is_refused(trial: Trial, name: str) -> bool:
    try:
        trial.sink(name)
    except PlanError:
        return True
    except Exception:  # noqa: BLE001 -- a finding, which is reported later
        return False
    return False


def run(case: CutCase, only: str | None = None) -> Outcome:
    """Return the outcome in settings that differ in one thing each; `only` limits them to those of one reason."""
    trial = Trial(case)
    comparisons = [each for each in _many(case) if only is None or only.startswith(each.reason)]
    return _compared(trial, comparisons or list(_many(case)))


def _few(trial: Trial) -> Iterator[Comparison]:
    """Yield settings that differ in several things at once, so that a few settings cover much."""
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
    """Yield settings that differ in one thing each."""
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
    def difference() -> Outcome | None:
        found = (_difference(trial, each) for each in comparisons)
        return _by_arrival(trial) or next((each for each in found if each is not None), None)

    return guarded(difference)


def guarded(difference: Callable[[], Outcome | None]) -> Outcome:
    """Return the outcome of a comparison, even if it cannot be made."""
    try:
        return difference() or Outcome("agreed")
    except PlanError as error:
        return Outcome("refused", reason_of(error.text))
    except LateError:
        return Outcome("not compared", "late rows")
    except ExpressionError:
        return Outcome("not compared", "an expression fails")
    except ProblemError as error:
        return Outcome("wrong", str(error))
    except Exception as error:  # noqa: BLE001 -- the kind of error that it looks for
        return failed(error)


def _by_arrival(trial: Trial) -> Outcome | None:
    """Return the finding if the result of a query by arrival differs from its model."""
    case = trial.case
    if case.arrival is None:
        return None
    if case.sql != case.arrival.sql:
        return Outcome("not compared", "another query than that of the model")
    expected = case.arrival.result(held(case))
    found = bag_in(trial.sink(SINK), trial.observed(Setting(case.cut(len(case.changes))))[SINK][1])
    return None if found == expected else Outcome("wrong", ARRIVAL, 0, expected, found)


def held(case: CutCase) -> dict[str, Rows]:
    """Return the rows of the tables at the end, in order of arrival."""
    tables = rows_of(case.tables)
    for number, each in enumerate(case.changes):
        tables[each["table"]].apply(each["op"], each["row"], number)
    return tables


def _difference(trial: Trial, comparison: Comparison) -> Outcome | None:
    one, other = comparison.one, comparison.other
    names = [name for name in one.sinks if name in other.sinks]
    for name in names:
        sink = trial.sink(name)
        if one.unread != other.unread and sink.value.names != trial.sink(name, unread=True).value.names:
            # The query has `*`, and so reads the additional columns.
            continue
        pairs = zip(trial.observed(one)[name], trial.observed(other)[name], strict=True)
        for when, (left, right) in zip(("", ", at the end of time"), pairs, strict=True):
            if left == right:
                continue
            bags = bag_in(sink, left), bag_in(sink, right)
            if bags[0] != bags[1] or isinstance(left, list):
                settings = f"{one}; {other}"
                return Outcome("wrong", f"{comparison.reason}{when}", 0, *bags, settings=settings)
    return None


def bag_in(sink: PhysicalSink, payloads: Any) -> Bag:
    """Return the rows of a sink's contents."""
    return bag_of(sink, payloads if isinstance(payloads, list) else list(payloads.elements()))


def document(case: CutCase) -> dict[str, Any]:
    """Return the file of a finding: the case with its results in two settings, or the expected and the found result."""
    outcome = run(case)
    if outcome.verdict != "wrong" or not (outcome.expected or outcome.found):
        return case.document(got=outcome.reason)
    sink = plan(case.job, SINK)
    one, other = shown(outcome.expected, sink), shown(outcome.found, sink)
    if outcome.reason == ARRIVAL:
        return case.document(expected=one, got=other)
    return case.document(got={"differs": outcome.reason, "one": one, "other": other, "settings": outcome.settings})
