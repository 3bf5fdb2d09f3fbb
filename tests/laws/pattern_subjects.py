"""Row patterns with the random changelogs that they accept: insert-only rows that a watermark has already passed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Int64s
from rowkind.operators.match.calls import MatchAggregate, MatchCall, MatchNumber, Navigation
from rowkind.operators.match.pattern import Pattern, PatternRepeat, PatternSequence, PatternVariable, Skip
from rowkind.operators.match.recognize import MatchRecognize
from tests import changelogs
from tests.changelogs import Change, Table
from tests.laws.subjects import Subject
from tests.oracle.inputs import Batches, Input
from tests.oracle.row_patterns import ID, VALUE, Condition, Sought, times

_TABLE = Table(key=(1,), sub_key=(3,), payload=(0, 1, 2, 3))
_DAY = 86_400_000_000


@dataclass(frozen=True)
class PatternSubject(Subject):
    """A row pattern over rows (id, partition, value, time), which arrive in order of time over all batches."""

    def batches(self, seed: str, *, batches: int = 6, changes: int = 12) -> Batches:
        """Return random rows, some with equal times; the rows within a batch are shuffled."""
        generator = random.Random(seed)
        result: Batches = []
        seq = 0
        for _ in range(generator.randint(1, batches)):
            batch = []
            for _ in range(generator.randint(0, changes)):
                seq += 1
                row = (seq, generator.choice([None, 1, 2]), generator.randrange(6), seq // 2)
                batch.append(Change(0, RowKind.INSERT, row, seq))
            generator.shuffle(batch)
            result.append(batch)
        return result

    def columns(self, batch: Sequence[Change]) -> Batch:
        """Return a batch in the form that the operator takes."""
        return changelogs.packed(batch, [_TABLE])


def _long_ago(payloads: pa.BinaryArray) -> Int64s:
    return times(payloads) - _DAY


def _subject(name: str, pattern: Pattern, skip: Skip, *calls: MatchCall, all_rows: bool) -> Subject:
    sought = Sought(pattern, (_LARGE, _SMALL, _LARGE), skip, None, all_rows, calls)
    spec = replace(sought.spec, times=_long_ago, most=3)
    return PatternSubject(name, MatchRecognize(spec), (Input("multiset", by_seq=True),))


_A, _B, _C = map(PatternVariable, range(3))
_SMALL = Condition("{0}.v < 3", (), lambda value, _: value < 3)
_LARGE = Condition("{0}.v >= 3", (), lambda value, _: value >= 3)

PATTERNS: tuple[Subject, ...] = (
    _subject(
        "a row pattern, the longest",
        PatternSequence((_A, PatternRepeat(_B, 0, None))),
        Skip(),
        Navigation((), ID),
        MatchAggregate("sum", (1,), VALUE),
        all_rows=True,
    ),
    _subject(
        "a row pattern, numbered, the shortest, from each row on",
        PatternSequence((_A, PatternRepeat(_B, 1, 3, reluctant=True), _C)),
        Skip("next row"),
        Navigation((), ID, first=True),
        MatchNumber(),
        all_rows=False,
    ),
)
"""Row patterns take no retractions, so that the laws about retractions do not apply to them."""
