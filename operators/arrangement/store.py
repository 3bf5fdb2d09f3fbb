"""The only thing an arrangement asks of the outside: named blobs.

`MemoryStore` is the store of the in-memory engine and of tests. Spark's lives in `service/spark/store.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Protocol

import pyarrow as pa

MANIFEST = "manifest"
"""The one name whose blob is ever replaced."""


class BlobStore(Protocol):
    """Blobs of one arrangement of one shard.

    - Every name but `MANIFEST` is written at most once with at most one content (names are digests of the content),
      so a store may cache such a blob anywhere and for any length of time.
    - `get` of a name that was never put or was deleted returns None; where a cache still has the bytes that the name is
      the digest of, it may return those. Never so for `MANIFEST`.
    - Changes become durable together with the batch, or not at all. A store never sees two batches at once.
    """

    def get(self, name: str) -> pa.Buffer | None:
        """The blob of this name, or None."""

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob; putting the same digest again is harmless."""

    def delete(self, name: str, size: int) -> None:
        """Forget a blob of `size` bytes; deleting an unknown name is harmless."""


def digest(blob: pa.Buffer | bytes) -> str:
    """The name of a blob: the first 128 bits of its SHA-256, for which processors have instructions, in hexadecimal."""
    return sha256(blob).hexdigest()[:32]


class MemoryStore:
    """A blob store in a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, pa.Buffer] = {}

    def get(self, name: str) -> pa.Buffer | None:
        """The blob of this name, or None."""
        return self._blobs.get(name)

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob."""
        self._blobs[name] = blob

    def delete(self, name: str, size: int) -> None:  # noqa: ARG002 - the protocol's
        """Forget a blob of `size` bytes."""
        self._blobs.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def copy(self) -> MemoryStore:
        """A store with the same blobs, as after a restart from a checkpoint."""
        twin = MemoryStore()
        twin._blobs = dict(self._blobs)
        return twin
