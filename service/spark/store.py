"""The blobs of arrangements in a MapState on RocksDB.

State layout: one map per stage, from (arrangement, name, part) to (parts, size, codec, blob). Opening a map costs each
task of each batch 24 ms, so all arrangements of a stage share one. A blob is compressed, because a byte costs far more
on its way through Spark than under the compressor; `size` is its length before, `codec` is empty where it would not
shrink. What then takes more than `PART_BYTES` is cut, and the first entry says into how many parts. Everything is
written and rolled back with the batch by Spark.

The map has Spark's own TTL, also where no arrangement has one: whether a map has one is part of the checkpoint and
could not be changed later, while how long it is may be. It is only a backstop for blobs that no batch touches any
more, and as long as the longest TTL of the stage needs it. A blob holds no row written after the blob itself, so one
that is older than its arrangement's TTL holds only expired rows; the margin keeps an arrangement from ever missing a
blob that it would still want to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from operators.store import MANIFEST, digest
from service.spark.cache import RunCache
from service.spark.errors import StateDamagedError

PART_BYTES = 4 << 20
"""The largest value that is put into RocksDB as one."""

# Not as text, which Spark would parse anew in every task: 8 ms for a map.
KEY_SCHEMA = StructType(
    [StructField("arrangement", StringType()), StructField("name", StringType()), StructField("part", IntegerType())]
)
VALUE_SCHEMA = StructType(
    [
        StructField("parts", IntegerType()),
        StructField("size", LongType()),
        StructField("codec", StringType()),
        StructField("blob", BinaryType()),
    ]
)

MAP = "blobs"
"""What the map is called in Spark's state store."""

_CODEC = "zstd"
_LEVEL = 1
_SMALL = 1 << 10
"""Blobs below this many bytes are stored as they are."""

_DAY_MS = 24 * 3600 * 1000
_FOREVER_MS = 1000 * 365 * _DAY_MS


def backstop(ttl_ms: int | None) -> int:
    """The TTL in ms that Spark enforces on the blobs of an arrangement whose rows live `ttl_ms`."""
    return _FOREVER_MS if ttl_ms is None else 2 * ttl_ms + _DAY_MS


def open_map(handle: StatefulProcessorHandle, ttls: Iterable[int | None]) -> MapState:
    """The map in which the blobs of arrangements with these TTLs, in ms, lie."""
    return handle.getMapState(MAP, KEY_SCHEMA, VALUE_SCHEMA, max(map(backstop, ttls)))


class SparkStore:
    """The blob store of one arrangement of one shard, for the length of one batch.

    Reads go to the cache first, except for the manifest, which is replaced and so is known for one batch only. Writes
    go to the state store always, whatever the cache knows: after a failed batch the cache may hold what state lost.
    """

    def __init__(self, state: MapState, arrangement: str, cache: RunCache) -> None:
        self._state = state
        self._arrangement = arrangement
        self._cache = cache
        self._manifest: pa.Buffer | None = None
        self.seconds = 0.0
        """Time spent in calls to the state store so far."""

    def get(self, name: str) -> pa.Buffer | None:
        """The blob of this name, or None."""
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
                f"the state store holds other bytes than were written for the run {name} ({blob.size} bytes): "
                "restore the checkpoint directory from a copy, or delete it to read the topics from the start"
            )
        return self._cache.put(name, blob)

    def put(self, name: str, blob: pa.Buffer) -> None:
        """Store a blob."""
        codec, packed = _pack(blob)
        parts = max(1, -(-packed.size // PART_BYTES))
        with self._timed():
            for part in range(parts):
                piece = packed[part * PART_BYTES : (part + 1) * PART_BYTES]
                self._state.updateValue(self._key(name, part), (parts, blob.size, codec, piece.to_pybytes()))
        if name == MANIFEST:
            self._manifest = blob
            self._remove(name, start=parts)
        else:
            self._cache.put(name, blob)

    def delete(self, name: str) -> None:
        """Forget a blob."""
        if name == MANIFEST:
            self._manifest = None
        else:
            self._cache.drop(name)
        with self._timed():
            self._state.removeKey(self._key(name, 0))
        self._remove(name, start=1)

    def _read(self, name: str) -> pa.Buffer | None:
        with self._timed():
            first = self._state.getValue(self._key(name, 0))
            if first is None:
                return None
            parts, size, codec, piece = first
            rest = [self._state.getValue(self._key(name, part)) for part in range(1, parts)]
        pieces = [piece, *(value[3] for value in rest if value is not None)]
        packed = pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return pa.Codec(codec).decompress(packed, decompressed_size=size) if codec else packed

    def _remove(self, name: str, start: int) -> None:
        """Remove the parts of a blob from `start` on; the state store alone knows whether there are any."""
        part = start
        with self._timed():
            while self._state.containsKey(self._key(name, part)):
                self._state.removeKey(self._key(name, part))
                part += 1

    def _key(self, name: str, part: int) -> tuple[str, str, int]:
        return self._arrangement, name, part

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def _pack(blob: pa.Buffer) -> tuple[str, pa.Buffer]:
    """The codec and the bytes as which a blob is stored."""
    if blob.size >= _SMALL:
        packed = pa.Codec(_CODEC, compression_level=_LEVEL).compress(blob)
        if packed.size < blob.size:
            return _CODEC, packed
    return "", blob
