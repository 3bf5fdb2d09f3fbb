"""MATCH_RECOGNIZE against SQL:2016's definition: after every batch exactly the decided matches have been emitted.

The tests use random patterns, conditions on the match so far, skip modes and measures, over random rows out of order,
many of them with equal times. The watermark advances in steps of any size; the operator processes it in stages of as
few as one row. These tests detect a wrong preference among matches, matches that are emitted too early or too late,
rows that are evicted while needed or kept while not needed, and match numbers that start again.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.rowtime import END
from rowkind.operators.match.recognize import MatchRecognize
from tests import changelogs
from tests.changelogs import Row, changed, pack
from tests.oracle.row_patterns import UNIT, Definition, Sought, sought
from tests.oracle.trials import Work, finding, trials
from tests.seeds import seeds

Arrived = tuple[int, Row]
"""A row with its arrival number."""

Timed = tuple[int, list[Arrived]]
"""The watermark after a batch in ms, and the batch's rows."""


def test_what_is_decided_has_come_out_after_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output after each batch equals the definition over the rows that the watermark has passed."""
    for trial in trials("match", seeds(400), monkeypatch):
        of, hashed = sought(trial.generator), trial.generator.choice(changelogs.HASHES)
        batches = _batches(trial.generator)
        most = trial.generator.choice([1, 4, of.spec.most])
        found = _difference(of, most, hashed, batches)
        assert found is None, f"seed '{trial.seed}'\n{of}\n{most} at once\n{batches}\n{found}"


def _batches(generator: random.Random) -> list[Timed]:
    """Return rows at times around the watermark, none of them late."""
    batches: list[Timed] = []
    now, seq = 0, 0
    values, partitions = generator.choice([3, 8]), generator.choice([1, 3])
    for _ in range(generator.randint(1, 8)):
        rows = []
        for _ in range(generator.randint(0, generator.choice([3, 12]))):
            seq += generator.choice([1, 1, 1, 2])
            time = (1000 * now) // UNIT + generator.randint(1, generator.choice([3, 20]))
            partition = generator.choice([None, 1, 2]) if partitions > 1 else 1
            rows.append((seq, (seq % 40, partition, generator.randrange(values), time)))
        generator.shuffle(rows)
        now += generator.choice([0, 1, 1, 2, 5, 9])
        batches.append((now, rows))
    if generator.random() < 0.6:
        batches.append((END, []))
    return batches


def columns(rows: Sequence[Arrived], hashed: changelogs.Hash) -> Batch:
    """Return rows in the form in which the operator takes them."""
    keys = [pack((row[1],)) for _, row in rows]
    return Batch(
        Changes(
            np.zeros(len(rows), np.int8),
            np.full(len(rows), RowKind.INSERT, np.int8),
            hashed(keys),
            binary(keys),
            binary(pack((row[3],)) for _, row in rows),
            np.array([seq for seq, _ in rows], np.int64),
            binary(pack(row) for _, row in rows),
        )
    )


@finding
def _difference(of: Sought, most: int, hashed: changelogs.Hash, batches: Sequence[Timed]) -> str | None:
    """Return how the operator's output is wrong on these batches; None if it is right."""
    work = Work(MatchRecognize(replace(of.spec, most=most)))
    every: dict[int | None, list[Arrived]] = defaultdict(list)
    for now, rows in batches:
        for seq, row in rows:
            every[row[1]].append((seq, row))
        output = work.process(columns(rows, hashed), now)
        step = changed(output.rows)
        if any(count < 0 for count in step.values()):
            return f"batch {work.number} takes back {step}"
        expected, kept = Counter[Row](), 0
        for own in every.values():
            passed = [each for each in own if UNIT * (each[1][3] or 0) <= 1000 * now]
            kept += len(own) - len(passed)
            passed.sort(key=lambda each: (each[1][3], each[0]))
            defined = Definition(of, [row for _, row in passed], None if now == END else 1000 * now).run()
            kept += defined.undecided
            expected += Counter(defined.result())
        if wrong := work.differs_from(expected):
            return wrong
        if (now == END or not kept) and output.state.rows and of.within is None and not of.spec.numbered:
            return f"{output.state.rows} rows are kept after batch {work.number}, where none is needed"
    return None
