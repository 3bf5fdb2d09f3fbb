"""Print the answer of `rowkind why`: as a tree of the plan's steps with their rows, or as a JSON object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from rowkind.quantities import counted, plural
from rowkind.service.cli.row_output import aligned
from rowkind.service.plan.explain.describe import describe
from rowkind.service.plan.explain.description import Step
from rowkind.service.plan.explain.display_names import with_display_names

if TYPE_CHECKING:
    from rowkind.service.job.model import Job
    from rowkind.service.physical.node import PhysicalSink
    from rowkind.service.verify.cut import BatchCut
    from rowkind.service.why.answer import ReportedCause, RowExplanation, SourceRow, StepRows
    from rowkind.service.why.history import Replayed, TopicChange
    from rowkind.service.why.narrowing import TableRead
    from rowkind.service.why.replay import Place

_DECIMAL = re.compile(r"-?\d+(\.\d+)?")
_PLACE = ("partition", "offset", "time")
_MOST_ENDS = 8
"""The number of partitions whose offsets are shown."""
_MOST_CAUSES = 3
"""The number of source changes that are shown for one change of the result."""


def text(job: Job, sink: PhysicalSink, answer: RowExplanation, batch: BatchCut | None = None) -> Iterator[str]:
    """Yield the lines of the answer for people. `batch`: the job's batch at whose end the rows are explained."""
    found = counted(len(answer.rows), "row") if answer.rows else "no row"
    yield _bold(f"{sink.name}: {found} with {answer.wanted.text}")
    if answer.rows:
        yield ""
        yield from _table(answer.rows, "  ")
    for cause in answer.causes:
        yield ""
        yield from _cause(cause)
    root = with_display_names(describe(sink.name, [sink], {sink.name: job.sinks[sink.name].sql})).sinks[0].root
    yield ""
    yield f"{_bold('sink ' + root.name)}: {root.title}"
    blamed = {cause.step for cause in answer.causes}
    for number, step in enumerate(root.inputs):
        last = number == len(root.inputs) - 1
        yield from _tree(step, answer, blamed, "└─ " if last else "├─ ", "   " if last else "│  ")
    if answer.changes is not None:
        yield ""
        yield from _history(answer, answer.changes)
    yield ""
    yield from _topic(sink, answer, batch)
    if batch is not None:
        at = batch.batches[-1]
        yield f"- as of batch {at.number:,} of the job, which began at {_time(at.now)}"
    else:
        yield f"- the job has not written a batch of {sink.name} yet, so the topics were read up to their ends"
    for read in answer.reads:
        by = f"kept {counted(read.kept, 'change')} with {' or '.join(read.by)}" if read.by else "kept all of them"
        yield f"- read {counted(read.records, 'record')} of {read.table}{_ends(read)}, {by}"
        if read.later:
            yield f"  the job has not read up to {counted(read.later, 'later record')} of {read.table} yet"
    yield from (f"- {note}" for note in answer.notes)


def _ends(read: TableRead) -> str:
    """Say up to which offsets a table was read: the first one of each partition that does not count."""
    ends = [f"{end:,} of partition {partition}" for partition, end in sorted(read.ends.items())]
    more = f" … of {len(ends)} partitions" if len(ends) > _MOST_ENDS else ""
    return f" before offset {', '.join(ends[:_MOST_ENDS])}{more}"


def _cause(cause: ReportedCause) -> Iterator[str]:
    yield f"{click.style(cause.step, fg='red', bold=True)}: {cause.text}"
    if cause.rows is not None and cause.rows.count:
        yield from _rows(cause.rows, "  ")


def _tree(step: Step, answer: RowExplanation, blamed: set[str], first: str, rest: str) -> Iterator[str]:
    margin = rest + ("│   " if step.inputs else "    ")
    mark = click.style("✗ ", fg="red", bold=True) if step.name in blamed else ""
    yield f"{first}{mark}{_bold(step.name)}: {step.title}"
    if step.same_as is not None:
        yield f"{margin}the same as {step.same_as[1]}"
    filters = [fact.text for fact in step.facts if fact.label == "filter"]
    yield from (f"{margin}filter {each}" for each in filters)
    rows = answer.steps.get(step.name)
    if rows is not None:
        yield from _rows(rows, margin) if rows.count else [f"{margin}{click.style('no row', dim=True)}"]
    if not any(_matters(answer, blamed, below) for below in step.walk()):
        return
    for number, below in enumerate(step.inputs):
        last = number == len(step.inputs) - 1
        yield from _tree(below, answer, blamed, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _matters(answer: RowExplanation, blamed: set[str], step: Step) -> bool:
    rows = answer.steps.get(step.name)
    return step.name in blamed or (rows is not None and rows.count > 0)


def _rows(rows: StepRows, margin: str) -> Iterator[str]:
    shown: Sequence[Mapping[str, Any]] = [_flat(each) for each in rows.sources] if rows.sources else rows.rows
    if not any(shown):
        yield f"{margin}{counted(rows.count, 'row')}"
        return
    yield from _table(shown, margin)
    if rows.count > len(shown):
        yield f"{margin}… {rows.count - len(shown):,} more, {rows.count:,} in all"


def _flat(row: SourceRow) -> Mapping[str, Any]:
    return {"partition": row.partition, "offset": row.offset, "time": _time(row.time), **row.row}


def _table(rows: Sequence[Mapping[str, Any]], margin: str) -> Iterator[str]:
    short = {name: name.rpartition(".")[2] for row in rows for name in row}
    if len(set(short.values())) == len(short):
        rows = [{short[name]: value for name, value in row.items()} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    right = frozenset(name for name in names if all(_is_number(row.get(name)) for row in rows))
    yield from (f"{margin}{line}" for line in aligned(rows, right))


def _is_number(value: object) -> bool:
    """Return whether a value is a number, a decimal number as text, or missing."""
    return (
        value is None or isinstance(value, int | float) or (isinstance(value, str) and bool(_DECIMAL.fullmatch(value)))
    )


def _history(answer: RowExplanation, changes: Sequence[TopicChange]) -> Iterator[str]:
    """Yield the changes in the topic as a table, each followed by what caused it."""
    yield _bold(f"{counted(len(changes), 'change')} of the row in the result's topic")
    if not changes:
        return
    yield "  The causes are reconstructed: the sources' changes were replayed one at a time, ordered by their times."
    flat = [
        {"op": each.change.op, "partition": each.partition, "offset": each.offset, "time": _time(each.time)}
        | dict(each.change.row)
        for each in changes
    ]
    header, *lines = _table(flat, "  ")
    yield header
    for line, each in zip(lines, changes, strict=True):
        yield line
        yield from (click.style(f"      {words}", dim=True) for words in _because(answer, each))


def _because(answer: RowExplanation, each: TopicChange) -> Iterator[str]:
    if each.cause is None:
        yield "cause unknown: no change of the sources has this effect when they are replayed"
        return
    for place in each.cause.places[:_MOST_CAUSES]:
        found = _change(answer, place)
        row = ", ".join(f"{name} {value}" for name, value in found.items() if name not in (*_PLACE, "table", "op"))
        where = f"partition {found['partition']}, offset {found['offset']:,}, {found['time']}"
        yield f"by {found['op']} of {found['table']} at {where}: {row}"
    if len(each.cause.places) > _MOST_CAUSES:
        yield f"or one of {len(each.cause.places) - _MOST_CAUSES:,} more changes that were replayed together"
    if each.more:
        yield f"the job wrote it together with {counted(each.more, 'earlier change')} of the row"


def _change(answer: RowExplanation, place: Place) -> Mapping[str, Any]:
    from rowkind.operators.changelog import SYMBOLS  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.why.answer import source_row  # noqa: PLC0415 -- as above

    changes = answer.tables[place.table]
    row = source_row(changes, place.index)
    return {"table": place.table, "op": SYMBOLS[changes.rows.kind[place.index]], **_flat(row)}


def _topic(sink: PhysicalSink, answer: RowExplanation, batch: BatchCut | None) -> Iterator[str]:
    if sink.to != "topic":
        yield f"- with `to: {sink.to}`, the sink has no topic, so the rows could not be compared with it"
    elif answer.topic_rows is None:
        yield f"- topic {sink.topic} does not exist, so the rows could not be compared with it"
    elif answer.topic_differs:
        others = counted(len(answer.topic_rows), "such row") if answer.topic_rows else "no such row"
        yield f"- topic {sink.topic} differs: it has {others}"
        if answer.topic_rows:
            yield from _table(answer.topic_rows, "    ")
        again = "" if batch is not None and batch.proven else "If the job is running, ask again. "
        yield f"  {again}If the difference remains, compare the whole topic with `rowkind verify`."
    else:
        same = f"has the same {plural(len(answer.rows), 'row')}" if answer.rows else "has no such row either"
        yield f"- topic {sink.topic} {same}"


def _bold(words: str) -> str:
    return click.style(words, bold=True)


def _time(ms: int) -> str:
    if ms < 0:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def document(sink: PhysicalSink, answer: RowExplanation, batch: BatchCut | None = None) -> dict[str, Any]:
    """Return the answer as a JSON object. `batch`: the job's batch at whose end the rows are explained."""
    topics = {name: changes.source.topic for name, changes in answer.tables.items()}
    root = describe(sink.name, [sink]).sinks[0].root
    found: dict[str, Any] = {
        "sink": sink.name,
        "key": dict(answer.wanted.row),
        "batch": None if batch is None else {"number": batch.batches[-1].number, "time": _time(batch.batches[-1].now)},
        "present": bool(answer.rows),
        "rows": list(answer.rows),
        "causes": [
            {"step": each.step, "kind": each.kind, "text": each.text, **_document(each.rows)} for each in answer.causes
        ],
        "steps": [
            {"step": step.name, "kind": step.kind, "title": step.title, **_document(answer.steps.get(step.name))}
            for step in root.walk()
            if step is not root and step.same_as is None
        ],
        "topic": {"topic": sink.topic or None, "rows": answer.topic_rows, "differs": answer.topic_differs},
        "reads": [asdict(each) | {"topic": topics[each.table]} for each in answer.reads],
        "notes": answer.notes,
    }
    if answer.changes is not None:
        found["changes"] = [_change_document(answer, each) for each in answer.changes]
    return found


def _document(rows: StepRows | None) -> dict[str, Any]:
    if rows is None:
        return {"count": 0}
    if rows.sources:
        return {"count": rows.count, "sources": [_source(each) for each in rows.sources]}
    return {"count": rows.count, "rows": list(rows.rows)}


def _source(row: SourceRow) -> dict[str, Any]:
    return {"partition": row.partition, "offset": row.offset, "time": _time(row.time) or None, "row": row.row}


def _change_document(answer: RowExplanation, each: TopicChange) -> dict[str, Any]:
    return {
        "op": each.change.op,
        "row": each.change.row,
        "partition": each.partition,
        "offset": each.offset,
        "time": _time(each.time) or None,
        "together_with": each.more,
        "by": None if each.cause is None else _causes(answer, each.cause),
    }


def _causes(answer: RowExplanation, cause: Replayed) -> list[dict[str, Any]]:
    found = []
    for place in cause.places:
        flat = _change(answer, place)
        row = {name: value for name, value in flat.items() if name not in (*_PLACE, "table", "op")}
        found.append({name: flat[name] for name in ("table", "op", *_PLACE)} | {"row": row})
    return found
