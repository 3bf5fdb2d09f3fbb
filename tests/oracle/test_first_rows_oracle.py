"""The first rows by arrival into an append sink: an emitted row stays, whichever Kafka partition lags behind."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from rowkind.avro.json_rows import decode
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.load import load
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import TrialBatch, read

FIRST = "SELECT id, k FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY PROCTIME()) <= {}"


@pytest.mark.parametrize(("sql", "most"), [(FIRST.format(1), 1), (FIRST.format(2), 2)])
@pytest.mark.parametrize("seed", range(10))
def test_the_first_rows_of_each_batch_order_are_final(sql: str, most: int, seed: int, tmp_path: Path) -> None:
    """The first rows of a key are those of the first batches, even if offsets of partitions are out of order."""
    dice = random.Random(seed)
    table = {"topic": "t", "mode": "append", "columns": {"id": "INT NOT NULL", "k": "INT NOT NULL"}}
    file = tmp_path / "job.yaml"
    sinks = {"o": {"topic": "o", "mode": "append", "sql": sql}}
    file.write_text(json.dumps({"job": "first", "tables": {"t": table}, "sinks": sinks}))
    job = load(file)
    sink = plan(job, "o")
    engine, offsets = MemoryEngine(sink), [0, 100, 7]
    expected: dict[int, list[int]] = {}
    found: dict[int, list[int]] = {}
    identity = 0
    for number in range(6):
        rows, numbers = [], []
        for _ in range(dice.randint(1, 4)):
            partition = dice.randrange(3)
            identity += 1
            offsets[partition] += 1
            rows.append({"id": identity, "k": dice.randint(1, 2)})
            numbers.append((offsets[partition], partition))
        for _, row in sorted(zip(numbers, rows, strict=True), key=lambda each: each[0]):
            if len(expected.setdefault(row["k"], [])) < most:
                expected[row["k"]].append(row["id"])
        lines = [{"table": "t", "op": "+I", "row": row} for row in rows]
        (batch,) = read(job, lines, "changes", len(lines))
        seq = ArrivalNumber.pack(*(np.array(part, np.int64) for part in zip(*numbers, strict=True)))
        given = TrialBatch(t=Rows(batch["t"].kind, seq, batch["t"].payload))
        for row in decode(sink.value, engine.batch(given, 1_000 + number)["o"].payload):
            found.setdefault(row["k"], []).append(row["id"])
    assert {k: sorted(rows) for k, rows in found.items()} == {k: sorted(rows) for k, rows in expected.items()}
