"""The contract of blob stores, as checks that run over any implementation.

A check is a sequence of steps, and each step runs in a separate batch over the same state. On Spark, the operator
`RunChecks` runs the checks inside the workers: each check is a payload, and has a separate shard.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.arrangement.store import MANIFEST, BlobStore, digest
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch, Emitted
from rowkind.operators.columns.changes import Changes, Rows
from rowkind.operators.operator import Output
from tests.spark.distinct import packed, unpacked

Step = Callable[[BlobStore, bool], None]
"""A step over a store. The flag says whether a cache may still return a blob that was deleted."""

SMALL = pa.py_buffer(b"a small blob")
EMPTY = pa.py_buffer(b"")
ZEROS = pa.py_buffer(bytes(10_000_000))
NOISE = pa.py_buffer(np.random.default_rng(1).bytes(9_000_000))


def put(*blobs: pa.Buffer) -> Step:
    """Put blobs under their digests."""

    def step(store: BlobStore, _: bool) -> None:
        for blob in blobs:
            store.put(digest(blob), blob)

    return step


def delete(*blobs: pa.Buffer) -> Step:
    """Delete blobs by their digests."""

    def step(store: BlobStore, _: bool) -> None:
        for blob in blobs:
            store.delete(digest(blob), blob.size)

    return step


def there(*blobs: pa.Buffer) -> Step:
    """Check that blobs are returned as they were put."""

    def step(store: BlobStore, _: bool) -> None:
        for blob in blobs:
            assert store.get(digest(blob)) == blob

    return step


def gone(*blobs: pa.Buffer) -> Step:
    """Check that blobs are absent; with a cache, they may still be returned unchanged."""

    def step(store: BlobStore, cached: bool) -> None:
        for blob in blobs:
            found = store.get(digest(blob))
            assert found is None or (cached and found == blob)

    return step


def manifest(blob: pa.Buffer | None) -> Step:
    """Check that the manifest is this blob."""

    def step(store: BlobStore, _: bool) -> None:
        assert store.get(MANIFEST) == blob

    return step


def replace(blob: pa.Buffer) -> Step:
    """Replace the manifest."""

    def step(store: BlobStore, _: bool) -> None:
        store.put(MANIFEST, blob)

    return step


def forget(blob: pa.Buffer) -> Step:
    """Delete the manifest, which is this blob."""

    def step(store: BlobStore, _: bool) -> None:
        store.delete(MANIFEST, blob.size)

    return step


def all_of(*steps: Step) -> Step:
    """Run several steps in one batch."""

    def step(store: BlobStore, cached: bool) -> None:
        for each in steps:
            each(store, cached)

    return step


CHECKS: Mapping[str, tuple[Step, ...]] = {
    "nothing is there at first": (all_of(gone(SMALL, ZEROS), manifest(None)),),
    "a blob is there in its batch and after": (all_of(put(SMALL), there(SMALL)), there(SMALL), there(SMALL)),
    "an empty blob is a blob": (all_of(put(EMPTY), there(EMPTY)), there(EMPTY)),
    "a large blob comes back whole": (put(ZEROS, NOISE), there(ZEROS, NOISE)),
    "a deleted blob is gone": (put(SMALL, NOISE), all_of(delete(SMALL, NOISE), gone(SMALL, NOISE)), gone(SMALL, NOISE)),
    "a blob is put and deleted in one batch": (all_of(put(NOISE), delete(NOISE), gone(NOISE)), gone(NOISE)),
    "a blob may be put twice": (
        all_of(put(SMALL), put(SMALL)),
        put(SMALL),
        all_of(there(SMALL), delete(SMALL)),
        gone(SMALL),
    ),
    "a blob may come again": (put(SMALL), delete(SMALL), put(SMALL), there(SMALL)),
    "an unknown blob may be deleted": (delete(SMALL, NOISE), gone(SMALL, NOISE)),
    "deleting one leaves the others": (put(SMALL, ZEROS), delete(SMALL), all_of(gone(SMALL), there(ZEROS))),
    "a manifest is replaced": (
        all_of(replace(SMALL), manifest(SMALL)),
        all_of(manifest(SMALL), replace(EMPTY), manifest(EMPTY)),
        manifest(EMPTY),
    ),
    "a large manifest shrinks": (replace(NOISE), all_of(manifest(NOISE), replace(SMALL)), manifest(SMALL)),
    "a manifest is deleted": (replace(NOISE), all_of(forget(NOISE), manifest(None)), manifest(None)),
}


@dataclass(frozen=True)
class RunChecks:
    """Run the step that a change's payload names, and emit the result."""

    cached: bool

    @property
    def arrangements(self) -> Mapping[str, int | None]:
        """A store without a TTL, and one with a TTL."""
        return {"kept": None, "expiring": 3_600_000}

    def process(self, batch: Batch, stores: Mapping[str, BlobStore], now: int) -> Output:
        """Run one step over each of the stores."""
        assert now > 0
        name, step = unpacked(batch.changes.payload)[0].decode().split("|")
        try:
            for store in stores.values():
                CHECKS[name][int(step)](store, self.cached)
            result = "passed"
        except Exception:  # noqa: BLE001 -- a failure is this operator's result
            result = traceback.format_exc()
        row = Rows(np.array([RowKind.INSERT], np.int8), np.zeros(1, np.int64), packed([f"{name}|{result}".encode()]))
        return Output(Emitted(row), Changes.empty(), StateSize())
