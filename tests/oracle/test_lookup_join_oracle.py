"""Lookup joins against their definition: a left row matches all right rows of its key at the end of its batch."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rowkind.operators.arrangement.layout import Layout
from rowkind.operators.changelog import RowKind
from rowkind.operators.join.input import Side
from rowkind.operators.temporal_join.lookup import LookupJoin, LookupJoinSpec
from tests import changelogs
from tests.changelogs import Change, Row, pack
from tests.oracle.inputs import TABLES, Input, Materialised
from tests.oracle.trials import Work, trials
from tests.seeds import seeds

pytestmark = pytest.mark.sampled(8)

PAD: Row = (None, None, None)


@dataclass
class Definition:
    """The right rows, and the left rows with the right rows that they matched."""

    right: Materialised
    key: int
    left: dict[Row, list[Row]] = field(default_factory=dict)

    def apply(self, batch: list[Change]) -> None:
        """Apply a batch, the right side first."""
        self.right.apply([change for change in batch if change.side == 1])
        there: dict[int | None, list[Row]] = {None: []}
        for row in self.right.rows:
            there.setdefault(row[self.key], []).append(row)
        before = dict(self.left)
        for change in sorted((change for change in batch if change.side == 0), key=lambda each: each.seq):
            if change.sign > 0:
                # A row that is retracted and inserted again within a batch keeps its matches.
                self.left[change.row] = before.get(change.row, there.get(change.row[1], []))
            else:
                del self.left[change.row]

    def result(self, *, padded: bool) -> Counter[Row]:
        """Return the rows in the output."""
        pads = [PAD] if padded else []
        return Counter((*row, *each) for row, met in self.left.items() for each in met or pads)


def changelog(generator: random.Random, *, only_comes: bool) -> list[list[Change]]:
    """Return left rows that are inserted, deleted and inserted again, and right rows that change."""
    live: list[Row] = []
    seq, result = 0, []
    for _ in range(generator.randint(1, 10)):
        batch = []
        for _ in range(generator.randint(0, 12)):
            seq += 1
            key = None if generator.random() < 0.1 else generator.randint(0, 3)
            if generator.random() < 0.4:
                kind = generator.choice([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE])
                row = generator.randint(0, 3), generator.randint(0, 2), generator.randint(0, 2)
                batch.append(Change(1, kind, row, seq))
            elif live and not only_comes and generator.random() < 0.5:
                row = live.pop(generator.randrange(len(live)))
                batch.append(Change(0, RowKind.DELETE, row, seq))
                if generator.random() < 0.3:
                    seq += 1
                    live.append(row)
                    batch.append(Change(0, RowKind.INSERT, row, seq))
            else:
                live.append((seq, key, generator.randint(0, 1)))
                batch.append(Change(0, RowKind.INSERT, live[-1], seq))
        generator.shuffle(batch)
        result.append(batch)
    return result


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("only_comes", [False, True])
@pytest.mark.parametrize("layout", TABLES)
def test_a_left_row_keeps_what_it_met_when_it_came(
    layout: Layout, padded: bool, only_comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding the output after each batch gives the definition; insert-only left rows are not stored."""
    sides = [Input("multiset", by_seq=True), Input(layout, by_seq=True)]
    for trial in trials(f"lookup, {layout}, {padded}, {only_comes}", seeds(40), monkeypatch):
        hashed = trial.generator.choice(changelogs.HASHES)
        right = Side(layout, by_seq=True, counts_unmatched=False)
        pad = pack(PAD) if padded else None
        work = Work(LookupJoin(LookupJoinSpec(right, pad, left_by_seq=True, left_only_comes=only_comes)))
        assert ("left" in work.stores) != only_comes
        definition = Definition(Materialised(sides[1]), sides[1].table.key[0])
        for batch in changelog(trial.generator, only_comes=only_comes):
            definition.apply(batch)
            output = work.process(changelogs.packed(batch, [of.table for of in sides], hashed))
            assert work.differs(output, 0, definition.result(padded=padded)) is None, batch
