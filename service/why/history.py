"""The history of a row: each change in the result's topic, and the change of a source that caused it.

The sources' changes are replayed one at a time, and the row's changes are recorded. This is a reconstruction: the job
reads changes in batches, so several of them may have caused one change of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rowkind.avro.json_rows import decode
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.why.atoms import Atoms, matching
from rowkind.service.why.replay import MOST_BATCHES, Place, arrivals, batch_of
from rowkind.service.why.sources import SourceChanges

JsonRow = Mapping[str, object]


@dataclass(frozen=True)
class RowChange:
    """A change of the wanted row: its kind, such as `+U`, and its values."""

    op: str
    row: JsonRow

    @property
    def inserts(self) -> bool:
        """Whether the change inserts the row."""
        return self.op in ("+I", "+U")


@dataclass(frozen=True)
class Replayed:
    """A step of the replay that changed the row: the changes of the sources, and the changes of the row."""

    places: Sequence[Place]
    changes: Sequence[RowChange]


@dataclass(frozen=True)
class TopicChange:
    """A change of the row in the result's topic, and the step of the replay that caused it, None if unknown.

    `more`: how many steps before it, since the previous change in the topic, changed the row too. Their changes were
    in the same batch of the job.
    """

    partition: int
    offset: int
    time: int
    change: RowChange
    cause: Replayed | None
    more: int


def replayed(sink: PhysicalSink, tables: Mapping[str, SourceChanges], atoms: Atoms) -> list[Replayed]:
    """Replay the changes one at a time, and return the steps that changed the wanted row."""
    engine, found = MemoryEngine(sink), []
    groups = arrivals(tables)
    size = -(-len(groups) // MOST_BATCHES) or 1
    for start in range(0, len(groups), size):
        places = [place for group in groups[start : start + size] for place in group]
        batch = batch_of(tables, places)
        changes = engine.batch(batch.rows, batch.now)[sink.name].rows
        changes = changes.filter(matching(atoms, sink.value, changes))
        if len(changes):
            rows = zip(changes.kind.tolist(), decode(sink.value, changes.payload), strict=True)
            found.append(Replayed(places, [RowChange(SYMBOLS[kind], row) for kind, row in rows]))
    return found


def history(sink: PhysicalSink, topic: SourceChanges, steps: Sequence[Replayed]) -> list[TopicChange]:
    """Pair the row's changes in the result's topic with the steps of the replay, both in order."""
    order = np.lexsort((topic.rows.seq, topic.times))
    rows = decode(sink.value, topic.rows.payload)
    found, next_ = [], 0
    for at in order.tolist():
        change = RowChange(SYMBOLS[topic.rows.kind[at]], rows[at])
        cause = _cause(sink, change, steps, next_)
        more = 0 if cause is None else cause - next_
        place = ArrivalNumber.of(int(topic.rows.seq[at]))
        step = None if cause is None else steps[cause]
        found.append(TopicChange(place.partition, place.offset, int(topic.times[at]), change, step, more))
        if cause is not None:
            # A step may have caused both halves of an update.
            next_ = cause + (1 if WEIGHTS[topic.rows.kind[at]] > 0 else 0)
    return found


def _cause(sink: PhysicalSink, change: RowChange, steps: Sequence[Replayed], first: int) -> int | None:
    """Return the number of the first step from `first` on that makes the same change."""
    for number in range(first, len(steps)):
        if any(_equal(sink, each, change) for each in steps[number].changes):
            return number
    return None


def _equal(sink: PhysicalSink, one: RowChange, other: RowChange) -> bool:
    if one.inserts != other.inserts:
        return False
    if sink.mode == "upsert" and not other.inserts:
        return all(one.row[name] == other.row[name] for name in sink.key)
    return one.row == other.row
