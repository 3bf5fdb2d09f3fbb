"""Run a case as `rowkind try` does, and classify its outcome.

- agreed: after each batch the folded output equals the oracle's result over the folded input.
- refused: the planner refuses the query and says why.
- wrong: the output differs, or the changes break the rules of the sink's mode.
- failed: another error was raised, which no user should see.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import duckdb
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.changes import Changes
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import Fold, MemoryEngine
from rowkind.service.query.trial import TrialBatch
from tests.fuzz.case import SINK, Case
from tests.fuzz.changelogs import rows_of
from tests.fuzz.expiring import ExpiryModel, expire
from tests.fuzz.oracle import Bag, Oracle, bag

Verdict = Literal["agreed", "refused", "wrong", "failed", "not compared"]
Engine = Callable[[Job, PhysicalSink, Sequence[TrialBatch], Case], Iterator[Changes]]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: the reason of a refusal, or the error, after how many changes, in which settings."""

    verdict: Verdict
    reason: str = ""
    changes: int = 0
    expected: Bag = field(default_factory=Counter)
    found: Bag = field(default_factory=Counter)
    settings: str = ""

    @property
    def is_finding(self) -> bool:
        """Return whether the outcome must be investigated."""
        return self.verdict in ("wrong", "failed")

    def like(self, other: Outcome) -> bool:
        """Return whether two findings may have the same cause."""
        return self.verdict == other.verdict and self.reason == other.reason


def in_memory(job: Job, sink: PhysicalSink, batches: Sequence[TrialBatch], case: Case) -> Iterator[Changes]:
    """Run the in-memory engine with the case's clock."""
    del job
    engine = MemoryEngine(sink)
    for number, batch in enumerate(batches):
        yield engine.batch(batch, case.now(number))[sink.name]


def run(case: Case, engine: Engine = in_memory) -> Outcome:
    """Return the outcome of a case."""
    try:
        return _compared(case, engine)
    except PlanError as error:
        return Outcome("refused", reason_of(error.text))
    except duckdb.Error as error:
        return Outcome("not compared", f"DuckDB: {str(error).partition(':')[0]}")
    except Exception as error:  # noqa: BLE001 -- the kind of error that it looks for
        return replace(failed(error), changes=len(case.changes))


def failed(error: Exception) -> Outcome:
    """Return the outcome for an error that no user should see."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return Outcome("failed", f"{type(error).__name__} in {frame.name}: {_masked(str(error))}")


def _compared(case: Case, engine: Engine) -> Outcome:
    job = case.job
    sink = plan(job, SINK)
    expectation = _expectation(case, job, sink)
    fold = Fold(keyed=sink.mode == "upsert")
    seen = 0
    outputs = engine(job, sink, case.batches(job), case)
    for changes, expected in zip(outputs, expectation, strict=True):
        seen = min(seen + case.batch_rows, len(case.changes))
        if problem := breach(sink, changes):
            return Outcome("wrong", problem, seen, expected)
        fold.apply(changes)
        try:
            payloads = fold.payloads
        except AssertionError as error:
            return Outcome("wrong", str(error), seen, expected)
        found = bag_of(sink, payloads)
        if found != expected:
            return Outcome("wrong", "rows", seen, expected, found)
    return Outcome("agreed")


def _expectation(case: Case, job: Job, sink: PhysicalSink) -> Iterator[Bag]:
    """Yield the rows of the result after each batch."""
    if case.clock and case.on_expire is None:
        model = ExpiryModel(case, job)
        for number, part in enumerate(case.parts):
            yield model.batch(part, case.now(number))
        return
    oracle, tables = Oracle(job, case.sql, case.windows), rows_of(case.tables)
    seen = 0
    for number, part in enumerate(case.parts):
        if case.on_expire is not None:
            expire(tables, case, job, case.now(number))
        for each in part:
            tables[each["table"]].apply(each["op"], each["row"], seen)
            seen += 1
        yield oracle.result(tables, sink.value)


def bag_of(sink: PhysicalSink, payloads: Sequence[bytes]) -> Bag:
    read = codec.read(sink.value, pa.array(payloads, pa.binary()))
    return bag(pa.table([read.column(name) for name in sink.value.names], names=list(sink.value.names)))


def breach(sink: PhysicalSink, changes: Changes) -> str:
    """Return how the changes of a batch break the rules of the sink's mode; empty if they do not."""
    allowed = {"append": "+I", "retract": "+I -U +U -D", "upsert": "+I +U -D"}[sink.mode].split()
    kinds = {SYMBOLS[kind] for kind in changes.kind.tolist()}
    if extra := kinds - set(allowed):
        return f"{'/'.join(sorted(extra))} in a sink of mode {sink.mode}"
    if sink.mode == "upsert":
        keys = changes.key.to_pylist()
        return "a key changes twice in a batch" if len(set(keys)) < len(keys) else ""
    signs: dict[bytes, int] = {}
    for payload, weight in zip(changes.payload.to_pylist(), changes.weight.tolist(), strict=True):
        if signs.setdefault(payload, weight) != weight:
            return "a row comes and goes in a batch"
    return ""


def reason_of(text: str) -> str:
    """Return the class of a refusal: its message without the query's names."""
    return _masked(re.split(r", line \d", text)[0])


def _masked(text: str) -> str:
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "…", text.partition("\n")[0])
    text = re.sub(r"\b[a-z]+\d+(\.\w+)*\b|\b\d+(\.\d+)?\b|\(\d+,\s*\d+\)", "…", text)
    return text if len(text) < 140 else f"{text[:139]}…"


def shown(rows: Bag, sink: PhysicalSink) -> list[dict[str, Any]]:
    """Return rows as `rowkind try --fold` prints them."""
    listed = list(rows.elements())
    columns = {
        field.name: pa.array([_value(row[number]) for row in listed], field.type.arrow)
        for number, field in enumerate(sink.value.fields)
    }
    return decode(sink.value, codec.encode(sink.value, columns, len(listed)))


def _value(value: Any) -> Any:
    return float("nan") if value == "NaN" else value
