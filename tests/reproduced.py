"""Check an answer of `rowkind why`: the source rows that it names must give the same rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from rowkind.avro.json_rows import decode
from rowkind.operators.changelog import RowKind
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.why.answer import RowExplanation
from rowkind.service.why.atoms import matching


def reproduced(sink: PhysicalSink, answer: RowExplanation, now: int = 1) -> bool:
    """Return whether the query over only the named source rows has the wanted rows."""
    tables = {
        table: replace(changes.rows, kind=np.full(len(changes.rows), RowKind.INSERT, np.int8))
        for table, changes in answer.sources.items()
    }
    rows = MemoryEngine(sink).batch(tables, now)[sink.name].rows
    rows = rows.filter(matching(answer.wanted.atoms, sink.value, rows))
    return Counter(map(str, decode(sink.value, rows.payload))) == Counter(map(str, answer.rows))
