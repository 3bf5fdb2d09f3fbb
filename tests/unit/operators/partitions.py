"""A rank operator that is tested with changes written as text."""

from __future__ import annotations

from typing import Any

from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST, MemoryStore
from rowkind.operators.changelog import RowKind
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import Ranking
from tests.changelogs import Change, Row, unpack
from tests.oracle.ranked import RankInput

KINDS = {kind.symbol: kind for kind in RowKind}


SOURCE = RankInput("multiset", by_seq=True)


class Partitions:
    """A rank operator that takes a batch as text and returns the emitted changes as text, sorted."""

    def __init__(self, spec: RankSpec, of: RankInput = SOURCE) -> None:
        self.store = MemoryStore()
        self.unmatched = 0
        self._of, self._rank, self._seq, self._now = of, Rank(spec), 0, 0

    def take(self, *changes: str, at: int | None = None) -> list[str]:
        """Apply `+I 1 7 100`, ... as one batch, at the given time in ms or else at the previous one."""
        batch = []
        for change in changes:
            kind, *columns = change.split()
            self._seq += 1
            row: Row = tuple(None if column == "NULL" else int(column) for column in columns)
            batch.append(Change(0, KINDS[kind], row, self._seq))
        self._now = self._now if at is None else at
        output = self._rank.process(self._of.columns(batch), {"rows": self.store}, self._now)
        self.unmatched = len(output.unmatched)
        pairs = zip(output.rows.kind.tolist(), output.rows.payload.to_pylist(), strict=True)
        return sorted(
            f"{RowKind(kind).symbol} {' '.join('NULL' if v is None else str(v) for v in unpack(payload))}"
            for kind, payload in pairs
        )

    @property
    def live(self) -> int:
        """The number of rows in the state."""
        blob = self.store.get(MANIFEST)
        return 0 if blob is None else Manifest.from_blob(blob, "rows").weight


def top(last: int, **options: Any) -> Partitions:
    """Return ROW_NUMBER() <= last over a retracting input, with optional changes."""
    of = {"function": "row_number", "first": 1, "last": last}
    of |= {name: options.pop(name) for name in ("function", "first", "ties", "strategy") if name in options}
    return Partitions(RankSpec(Ranking(**of), **({"by_seq": True} | options)))
