"""A test operator: SELECT DISTINCT over whole rows of one column, with its multiset in one blob.

It is the smallest operator that reads, writes, replaces and deletes blobs.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore, digest
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows, binary
from rowkind.operators.operator import Output
from rowkind.service.execute import calc
from rowkind.service.physical.graph import Exit
from rowkind.service.physical.node import Traits
from tests.queries import by, select

BYTES = Record.of({"bytes": "BINARY NOT NULL"}, "bytes")
"""The type of rows in these tests: arbitrary bytes."""


@dataclass(frozen=True)
class Distinct:
    """Keeps the count of each payload; emits a payload when it appears and retracts it when its count becomes zero."""

    ttl_ms: int | None = None
    padding: int = 0

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The one arrangement."""
        return {"rows": self.ttl_ms}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Count the changes, in order of arrival."""
        assert now > 0
        changes = batch.changes
        store = stores["rows"]
        manifest = store.get(MANIFEST)
        old = manifest.to_pybytes().decode() if manifest else ""
        run = store.get(old) if old else None
        counts: Counter[bytes] = Counter(pickle.loads(run)[0] if run else {})
        before = set(counts)
        unmatched = []
        order = np.argsort(changes.seq, kind="stable")
        for i in order:
            payload, weight = changes.payload[i].as_py(), int(changes.weight[i])
            if weight < 0 and not counts[payload]:
                unmatched.append(i)
                continue
            counts[payload] += weight
        counts = +counts
        blob = pa.py_buffer(pickle.dumps((dict(sorted(counts.items())), bytes(self.padding))))
        name = digest(blob)
        if name != old:
            store.put(name, blob)
            store.put(MANIFEST, pa.py_buffer(name.encode()))
            if run is not None:
                store.delete(old, run.size)
        gone, new = sorted(before - set(counts)), sorted(set(counts) - before)
        kind = np.array([RowKind.DELETE] * len(gone) + [RowKind.INSERT] * len(new), np.int8)
        rows = Rows(kind, np.full(len(kind), int(changes.seq.max()), np.int64), binary(gone + new))
        return Output(Emitted(rows), changes.take(np.array(unmatched, np.int64)), StateSize(len(counts), blob.size, 1))


def way_out(to: int = 1, level: int = 2, *, side: int = 0, stays: bool = False) -> Exit:
    """Return an exit that routes each row by its bytes; by default, to the sink of a single operator."""
    return Exit("way", select(BYTES, key=by(BYTES, "bytes"), side=side), to, level, stays, Traits())


def by_bytes(rows: Rows) -> Changes:
    """Return rows as changes, routed by their bytes."""
    return calc.run(way_out().calc, rows)


def packed(rows: Iterable[bytes]) -> pa.BinaryArray:
    """Encode bytes as rows of `BYTES`."""
    return codec.encode(BYTES, {"bytes": binary(rows)})


def unpacked(payloads: pa.BinaryArray) -> list[bytes]:
    """Return the bytes in rows of `BYTES`."""
    found: list[bytes] = codec.read(BYTES, payloads).column("bytes").to_pylist()
    return found


def changes(*rows: tuple[str, str], start: int = 0) -> Changes:
    """Return changes from pairs of a row kind's symbol and a text, numbered from `start`."""
    kinds = {kind.symbol: kind for kind in RowKind}
    return by_bytes(
        Rows(
            np.array([kinds[symbol] for symbol, _ in rows], np.int8),
            np.arange(start, start + len(rows), dtype=np.int64),
            packed(text.encode() for _, text in rows),
        )
    )


def batch_of(*rows: tuple[str, str], start: int = 0) -> Batch:
    """Return the same changes as a batch."""
    return Batch(changes(*rows, start=start))


def fold(parts: Sequence[Changes]) -> Counter[bytes]:
    """Return the multiset of rows that changes add up to, without zero counts and with negative ones."""
    counts: Counter[bytes] = Counter()
    for part in parts:
        for row, weight in zip(unpacked(part.payload), part.weight.tolist(), strict=True):
            counts[row] += weight
    return Counter({row: count for row, count in counts.items() if count})
