"""Blob stores, the only storage that an arrangement uses.

The in-memory engine and the tests use `MemoryStore`. Spark's store is in `service/spark/store.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Protocol

import pyarrow as pa

MANIFEST = "manifest"
"""The only name whose blob is ever replaced."""


class BlobStore(Protocol):
    """The blobs of one arrangement of one shard.

    - Every name except `MANIFEST` is a digest of the blob's content, so a blob never changes. A store may therefore
      cache it anywhere and indefinitely.
    - `get` returns None for a name that was never put, or was deleted. A cache may still return a deleted blob, but
      never for `MANIFEST`.
    - Changes become durable together with the batch, or not at all. Two batches never use a store at the same time.
    """

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob of this name, or None."""

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob; putting the same digest again is harmless."""

    def delete(self, name: str, size: int) -> None:
        """Delete a blob of `size` bytes; deleting an unknown name is harmless."""


def digest(blob: pa.Buffer | bytes) -> str:
    """Return the name of a blob: the first 128 bits of its SHA-256, in hexadecimal. Hardware accelerates SHA-256."""
    return sha256(blob).hexdigest()[:32]


class MemoryStore:
    """A blob store in a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, pa.Buffer] = {}

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob of this name, or None."""
        return self._blobs.get(name)

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob."""
        self._blobs[name] = blob

    def delete(self, name: str, size: int) -> None:  # noqa: ARG002 - the protocol has it
        """Delete a blob of `size` bytes."""
        self._blobs.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def copy(self) -> MemoryStore:
        """Return a store with the same blobs, as after a restart from a checkpoint."""
        twin = MemoryStore()
        twin._blobs = dict(self._blobs)
        return twin
