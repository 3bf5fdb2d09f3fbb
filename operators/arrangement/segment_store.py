"""Access to the segments in a blob store. Segments are opened at most once per batch, and written at its end."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rowkind.operators.arrangement.entries import Entries
from rowkind.operators.arrangement.manifest import SegmentInfo
from rowkind.operators.arrangement.segment import Segment, cut, encode
from rowkind.operators.arrangement.store import BlobStore
from rowkind.operators.errors import StateLost


class SegmentStore:
    """The segments of one arrangement of one shard, for one batch.

    Segments with equal content share a name and a blob, even across runs. `settle` deletes a blob only if no run or
    merge refers to it any more, and never writes a blob that was needed only during the batch.
    """

    def __init__(self, store: BlobStore, arrangement: str) -> None:
        self._store = store
        self._arrangement = arrangement
        self._written: dict[str, pa.Buffer] = {}
        self._open: dict[str, Segment] = {}

    def open(self, info: SegmentInfo) -> Segment:
        """Return an opened segment. Raises `StateLost` if the segment is missing from the store."""
        segment = self._open.get(info.name)
        if segment is None:
            blob = self._written.get(info.name)
            if blob is None:
                blob = self._store.get(info.name)
            if blob is None:
                raise StateLost(self._arrangement, info.name)
            segment = Segment.open(blob, info.name, self._arrangement)
            self._open[info.name] = segment
        return segment

    def write(self, entries: Entries) -> list[SegmentInfo]:
        """Encode entries, which must be in order, as segments. `settle` writes the segments to the store."""
        return [self._write(piece) for piece in cut(entries)]

    def _write(self, entries: Entries) -> SegmentInfo:
        name, blob = encode(entries)
        self._written[name] = blob
        return SegmentInfo(
            name=name,
            rows=len(entries),
            bytes=blob.size,
            first=int(entries.place[0]),
            last=int(entries.place[-1]),
            newest=int(entries.written_at.max()),
        )

    def settle(self, before: Iterable[SegmentInfo], after: Iterable[SegmentInfo]) -> None:
        """Update the store, which contains the segments in `before`, so that it contains the segments in `after`."""
        held = {segment.name: segment.bytes for segment in before}
        kept = {segment.name for segment in after}
        for name in sorted(kept - held.keys()):
            self._store.put(name, self._written[name])
        for name in sorted(held.keys() - kept):
            self._store.delete(name, held[name])
