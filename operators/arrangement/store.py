"""Blob stores, the only storage that an arrangement uses.

The in-memory engine and the tests use `MemoryStore`. The store for Spark is in `service/spark/store.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Protocol

import pyarrow as pa

MANIFEST = "manifest"
"""The only name whose blob is ever replaced."""


class BlobStore(Protocol):
    """The blobs of one shard's arrangement.

    - Every name except `MANIFEST` is a digest of the blob's content, so the blob with that name never changes. A store
      may therefore cache the blob anywhere and indefinitely.
    - `get` returns None for a name that was never stored, or was deleted. A cache may still return a deleted blob, but
      not one with the name `MANIFEST`.
    - Changes to the store become durable together with the batch, or not at all. Two batches never use the same store
      at the same time.
    """

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob with this name, or None if there is no such blob."""

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob under this name. Storing a blob that the store already has is harmless."""

    def delete(self, name: str, size: int) -> None:
        """Delete the blob with this name, which has `size` bytes. Deleting an unknown name is harmless."""


def digest(blob: pa.Buffer | bytes) -> str:
    """Return the name of a blob: the first 128 bits of its SHA-256 digest, in hexadecimal."""
    # SHA-256 is fast, because processors accelerate it.
    return sha256(blob).hexdigest()[:32]


class MemoryStore:
    """A blob store in memory, backed by a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, pa.Buffer] = {}

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob with this name, or None if there is no such blob."""
        return self._blobs.get(name)

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob under this name."""
        self._blobs[name] = blob

    def delete(self, name: str, size: int) -> None:  # noqa: ARG002 - the protocol has it
        """Delete the blob with this name."""
        self._blobs.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def copy(self) -> MemoryStore:
        """Return a store with the same blobs, as after a restart from a checkpoint."""
        twin = MemoryStore()
        twin._blobs = dict(self._blobs)
        return twin
