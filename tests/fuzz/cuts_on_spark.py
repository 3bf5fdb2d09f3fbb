"""The split law on the Spark engine: a job in a few batches gives the result of one batch in memory."""

from __future__ import annotations

import random
from dataclasses import replace

from rowkind.service.physical.graph import graph
from rowkind.service.query.trial import TrialBatch
from tests.fuzz.case import SINK
from tests.fuzz.cut_case import CutCase
from tests.fuzz.cut_trial import Result, Setting, Trial
from tests.fuzz.cuts import accepted, bag_in, guarded
from tests.fuzz.running import Engine, Outcome

ENGINE = "by the engine"


def look_on_spark(case: CutCase, engine: Engine) -> tuple[CutCase, Outcome]:
    """Return the case without a second query, and its outcome; a case with a clock is not compared on Spark."""
    case = accepted(replace(case.alone, arrival=None)).case
    if any(case.times):
        return case, Outcome("not compared", "the case has a clock")
    return case, guarded(lambda: _difference(Trial(case), engine))


def _difference(trial: Trial, engine: Engine) -> Outcome | None:
    case, sink = trial.case, trial.sink(SINK)
    rng = random.Random(f"spark {case.title}")
    setting = Setting(case.random_cut(rng, 0.2))
    # The in-memory engine raises LateError if a row is late in these batches.
    trial.observed(setting)
    expected = trial.observed(Setting(case.cut(len(case.changes))))[SINK][1]
    batches = trial.batches(setting)
    if any(clock.tables or clock.processing for clock in graph([sink]).clocks):
        last = TrialBatch()
        last.clock, last.ended = batches[-1].clock, True
        batches.append(last)
    result = Result(sink)
    for changes in engine(case.job, sink, batches, case):
        result.take(changes)
    one, other = bag_in(sink, expected), bag_in(sink, result.now())
    return None if one == other else Outcome("wrong", ENGINE, 0, one, other, settings=str(setting))
