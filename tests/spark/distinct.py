"""The operator of these tests: SELECT DISTINCT over whole payloads, with its multiset in one blob.

It is as small as an operator can be that reads, writes, replaces and deletes blobs.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore, digest
from rowkind.operators.columns.changes import Changes, RowKind, Rows, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.operator import Output


@dataclass(frozen=True)
class Distinct:
    """Keeps how often each payload is there; puts one out when it appears, and takes it back when it is gone."""

    ttl_ms: int | None = None
    padding: int = 0

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """The one arrangement."""
        return {"rows": self.ttl_ms}

    def process(self, changes: Changes, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Count the changes in, in order of arrival."""
        assert now > 0
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
        return Output(rows, changes.take(np.array(unmatched, np.int64)), StateSize(len(counts), blob.size, 1))


def by_payload(rows: Rows) -> Changes:
    """A calc that sends each row on by its whole payload."""
    return Changes(
        side=np.zeros(len(rows), np.int8),
        kind=rows.kind,
        hash=hash64(rows.payload),
        key=rows.payload,
        sub_key=binary([b""] * len(rows)),
        seq=rows.seq,
        payload=rows.payload,
    )


def changes(*rows: tuple[str, str], start: int = 0) -> Changes:
    """Changes from pairs of a row kind's symbol and a payload, numbered from `start`."""
    kinds = {kind.symbol: kind for kind in RowKind}
    return by_payload(
        Rows(
            np.array([kinds[symbol] for symbol, _ in rows], np.int8),
            np.arange(start, start + len(rows), dtype=np.int64),
            binary(payload.encode() for _, payload in rows),
        )
    )
