"""MATCH_RECOGNIZE against SQL:2016's definition: after every batch what is decided has come out, and nothing else.

Random patterns, conditions on the match so far, ways to go on and measures, over random rows that come out of order,
many of them at one time. The clock moves in steps of any size, with which the operator goes by stages of as few rows
as one. These tests see a way preferred that should not be,
matches that come too early or too late, rows that are forgotten while somebody needs them, or kept when nobody does,
and numbers that begin anew.
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
"""How far a batch moves the watermark, in ms, and its rows."""


def test_what_is_decided_has_come_out_after_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output after each batch is the definition's over the rows that the watermark has passed."""
    for trial in trials("match", seeds(400), monkeypatch):
        of, hashed = sought(trial.generator), trial.generator.choice(changelogs.HASHES)
        batches = _batches(trial.generator)
        most = trial.generator.choice([1, 4, of.spec.most])
        found = _difference(of, most, hashed, batches)
        assert found is None, f"seed '{trial.seed}'\n{of}\n{most} at once\n{batches}\n{found}"


def _batches(generator: random.Random) -> list[Timed]:
    """Rows at times around the watermark, none of them late."""
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
    """Rows as the operator takes them."""
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
    """What is wrong with the operator on these batches; None if nothing is."""
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
