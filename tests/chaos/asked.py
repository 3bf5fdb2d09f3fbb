"""`rowkind why` after a round of chaos: some rows of each result are explained from the topics.

The source rows that the answer names must give the row, and the topic must have the row as the sources give it.
"""

from __future__ import annotations

import random
from pathlib import Path

from rowkind.service.client.external_table import opened, readable_topic
from rowkind.service.job.load import load
from rowkind.service.plan.pipeline import plan
from rowkind.service.why.answer import answer
from rowkind.service.why.topics import TablesInKafka
from rowkind.service.why.wanted import wanted
from tests.reproduced import reproduced
from tests.run.results import Results

_ROWS = 2
"""The number of rows of each sink that are explained."""


def ask_why(job: Path, results: dict[str, Results], servers: str, chance: random.Random) -> int:
    """Explain some rows of each sink, and return their number. Fails if an answer is wrong."""
    of = opened(load(job))
    assert of.kafka is not None, "the job has been opened"
    of = of.model_copy(update={"kafka": {**of.kafka, "bootstrap.servers": servers}})
    asked = 0
    for name, result in results.items():
        sink, rows = plan(of, name), sorted(result.rows(), key=str)
        columns = sink.key or sink.value.names
        for row in chance.sample(rows, min(_ROWS, len(rows))):
            values = dict(zip(sink.value.names, row, strict=True))
            key = [f"{each}={'NULL' if values[each] is None else values[each]}" for each in columns]
            tables = TablesInKafka(of)
            conditions = wanted(sink, key)
            topic = tables.read(readable_topic(of, name), conditions.atoms)
            found = answer(sink, conditions, tables, topic)
            assert found.rows, f"{name}: the row {key} is left out: {found.causes}"
            assert not found.topic_differs, f"{name}: {key}: the topic has {found.topic_rows}, not {found.rows}"
            assert reproduced(sink, found), f"{name}: {key}: the named rows do not give the row: {found.sources}"
            asked += 1
    return asked
