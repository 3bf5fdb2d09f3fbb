"""Stores the blobs of arrangements in a MapState on RocksDB.

State layout: one map per stage, from a path `arrangement/name/part` to bytes. The bytes consist of a header that says
how the blob is stored, followed by the blob or a part of it. Key and value are single columns, and there is only one
map, because Spark compiles a plan for each map and column again in every task: 24 ms for a map with three key columns
and four value columns. A blob is compressed, because moving a byte through Spark costs far more than compressing it. A
compressed blob larger than `PART_BYTES` is cut into parts, and every header contains the number of parts. Spark commits
or rolls back all writes with the batch.

The map does not use Spark's TTL. An arrangement drops expired rows in every batch of its shard, and uses the current
TTL. Spark would set each blob's expiry with the TTL at the time of writing, and drop blobs that are still needed after
the TTL has been raised. Spark's TTL would also cost as much as all other state calls of a small batch.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from rowkind.operators.arrangement.store import MANIFEST, digest
from rowkind.service.spark.cache import RunCache
from rowkind.service.spark.errors import StateDamagedError

PART_BYTES = 4 << 20
"""The maximum size in bytes of a single value in RocksDB."""

# The types are not written as text, because Spark would parse the text again in every task: 8 ms for a map.
KEY_SCHEMA = StructType([StructField("path", StringType())])
VALUE_SCHEMA = StructType([StructField("blob", BinaryType())])

MAP = "blobs"
"""The map's name in Spark's state store."""

_HEADER = struct.Struct("<?IQ")
"""Whether the blob is compressed, the number of its parts, and its uncompressed size in bytes."""

_CODEC = "zstd"
_LEVEL = 1
_SMALL = 1 << 10
"""Blobs smaller than this many bytes are stored uncompressed."""


def open_map(handle: StatefulProcessorHandle) -> MapState:
    """Return the map with the blobs of a stage."""
    return handle.getMapState(MAP, KEY_SCHEMA, VALUE_SCHEMA)


class SparkStore:
    """The blob store of one arrangement in one shard, for the duration of one batch.

    Blobs are read from the cache if possible. The manifest is cached for one batch only, because it is replaced. Blobs
    are always written to the state store, whatever the cache contains: after a failed batch, the cache may contain
    blobs that the state has lost.
    """

    def __init__(self, state: MapState, arrangement: str, cache: RunCache) -> None:
        self._state = state
        self._arrangement = arrangement
        self._cache = cache
        self._manifest: pa.Buffer | None = None
        self.seconds = 0.0
        """Seconds spent in calls to the state store so far."""

    def get(self, name: str) -> pa.Buffer | None:
        """Return the blob with this name, or None if there is none. Raises StateDamagedError if its digest is wrong."""
        if name == MANIFEST:
            if self._manifest is None:
                self._manifest = self._read(name)
            return self._manifest
        blob = self._cache.get(name)
        if blob is not None:
            return blob
        blob = self._read(name)
        if blob is None:
            return None
        if digest(blob) != name:
            raise StateDamagedError(
                f"the state store returned different bytes than were written for the run {name} ({blob.size} bytes): "
                "`rowkind run --reset-state` rebuilds the state from the topics"
            )
        return self._cache.put(name, blob)

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob."""
        before = self.get(name) if name == MANIFEST else None
        compressed, packed = _pack(blob)
        parts = _parts(packed.size)
        header = _HEADER.pack(compressed, parts, blob.size)
        with self._timed():
            for part in range(parts):
                piece = packed[part * PART_BYTES : (part + 1) * PART_BYTES]
                self._state.updateValue(self._key(name, part), (header + piece.to_pybytes(),))
        if name == MANIFEST:
            self._manifest = blob
            if before is not None:
                self._remove(name, range(parts, _parts(before.size)))
        else:
            self._cache.put(name, blob)

    def delete(self, name: str, size: int) -> None:
        """Remove a blob of `size` bytes."""
        if name == MANIFEST:
            self._manifest = None
        else:
            self._cache.drop(name)
        self._remove(name, range(_parts(size)))

    def _read(self, name: str) -> pa.Buffer | None:
        with self._timed():
            first = self._state.getValue(self._key(name, 0))
            if first is None:
                return None
            compressed, parts, size = _HEADER.unpack_from(first[0])
            others = [self._state.getValue(self._key(name, part)) for part in range(1, parts)]
        pieces = [memoryview(value[0])[_HEADER.size :] for value in (first, *others) if value is not None]
        packed = pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return pa.Codec(_CODEC).decompress(packed, decompressed_size=size) if compressed else packed

    def _remove(self, name: str, parts: range) -> None:
        """Remove the given parts of a blob, if they exist."""
        with self._timed():
            for part in parts:
                self._state.removeKey(self._key(name, part))

    def _key(self, name: str, part: int) -> tuple[str]:
        return (f"{self._arrangement}/{name}/{part}",)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


class SparkState:
    """The state of one shard in a stage, for the duration of one batch (`service.execute.stage`)."""

    def __init__(self, state: MapState, cache: RunCache) -> None:
        self._state = state
        self._cache = cache
        self._stores: dict[str, SparkStore] = {}

    @property
    def seconds(self) -> float:
        """Seconds spent in calls to the state store so far."""
        return sum(each.seconds for each in self._stores.values())

    def store(self, name: str) -> SparkStore:
        """Return the blobs of the arrangement with this name."""
        if name not in self._stores:
            self._stores[name] = SparkStore(self._state, name, self._cache)
        return self._stores[name]


def _pack(blob: pa.Buffer) -> tuple[bool, pa.Buffer]:
    """Return whether a blob is stored compressed, and the bytes to store."""
    if blob.size >= _SMALL:
        packed = pa.Codec(_CODEC, compression_level=_LEVEL).compress(blob)
        if packed.size < blob.size:
            return True, packed
    return False, blob


def _parts(size: int) -> int:
    """Return the number of parts for `size` bytes: exact for a stored size, an upper bound for an uncompressed size."""
    return max(1, -(-size // PART_BYTES))
