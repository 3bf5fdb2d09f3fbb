"""Kafka records as columns: reading and writing without a Python object per record.

confluent-kafka costs 3.5 s of CPU per million records read, a C program over the same librdkafka one. So a small
library in C, `columns.c`, reads and writes thousands of records in one call, with the clients of confluent-kafka:
settings, logins, transactions and errors stay with it. The library is compiled when Rowkind is installed. Where there
was no compiler, the same work is done record by record (`service.kafka.received`), which is also the oracle of the
tests.

The records of a partition reach the library through a queue of its own, to which librdkafka forwards them. What
confluent-kafka reports through callbacks stays in the consumer's queue, and is reported when Python polls that.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, cimpl

from rowkind import native
from rowkind.avro.buffers import data_of, offsets_of, validity
from rowkind.operators.columns.changes import Int8s, Int64s, binary
from rowkind.service.kafka.headers import Headers
from rowkind.service.kafka.received import MessageReader, PartitionEvent, Received, RecordReader
from rowkind.service.kafka.record import Records

_COLUMNS = (
    *("topic", "partition", "offset", "timestamp"),
    *("value_end", "value", "value_known", "key_end", "key", "key_known"),
    *("header_end", "header_name", "header_value_end", "header_value", "header_value_known"),
    *("names", "events"),
)
"""The columns of a chunk in the order of `columns.c`."""

_EVENT = struct.Struct("=iiiiq")
_ROOM_SECONDS = 0.1


class _Column(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64), ("room", ctypes.c_int64))


class _Chunk(ctypes.Structure):
    _fields_ = tuple((name, _Column) for name in _COLUMNS)

    def bytes(self, name: str) -> bytes:
        """Return a copy of a column, which the next call of the library overwrites."""
        column: _Column = getattr(self, name)
        return ctypes.string_at(column.data, column.size) if column.size else b""

    def numbers(self, name: str, dtype: npt.DTypeLike) -> Int64s:
        """Return a column of numbers as int64."""
        return np.frombuffer(self.bytes(name), dtype).astype(np.int64, copy=False)

    def strings(self, name: str) -> pa.BinaryArray:
        """Return a column of bytes with nulls."""
        known = np.frombuffer(self.bytes(f"{name}_known"), np.bool_)
        nulls = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
        buffers = [nulls, pa.py_buffer(self.bytes(f"{name}_end")), pa.py_buffer(self.bytes(name))]
        return pa.Array.from_buffers(pa.binary(), len(known), buffers)


class _Strings(ctypes.Structure):
    _fields_ = (("end", ctypes.c_void_p), ("data", ctypes.c_void_p), ("known", ctypes.c_void_p))


@cache
def _library() -> ctypes.CDLL | None:
    """Return the compiled library, or None if it was not compiled or does not fit the installed confluent-kafka."""

    def prepare(library: ctypes.CDLL) -> bool:
        library.rk_bind.restype = ctypes.c_char_p
        library.rk_reader.restype = ctypes.c_void_p
        library.rk_read.restype = ctypes.POINTER(_Chunk)
        library.rk_produce.restype = ctypes.c_int64
        return library.rk_bind(cimpl.__file__.encode()) is None

    return native.load(Path(__file__).parent, "columns", prepare)


def is_compiled() -> bool:
    """Return whether records are read and written as columns."""
    return _library() is not None


def _client(owner: Any) -> ctypes.c_void_p:
    """Return the `rd_kafka_t *` of a consumer or producer, the first field of its C structure."""
    return ctypes.c_void_p.from_address(id(owner) + object.__basicsize__)


def reader(consumer: Consumer, *, whole: bool) -> RecordReader:
    """Return a reader of the consumer's records. `whole`: with all keys, not only those of records without a value."""
    library = _library()
    if library is None:
        return MessageReader(consumer, whole=whole)
    return ColumnReader(library, consumer, whole=whole)


class ColumnReader:
    """Takes records as columns (`service.kafka.received.RecordReader`)."""

    def __init__(self, library: ctypes.CDLL, consumer: Consumer, *, whole: bool) -> None:
        self._library, self._consumer, self._whole = library, consumer, whole
        self._reader = _enough(library.rk_reader(_client(consumer)))
        # The queue must be freed before its client. The consumer is an argument, so that it lives until then.
        self.close = weakref.finalize(self, _free, library, self._reader, consumer)

    def begin(self, topics: Sequence[str], partitions: Sequence[tuple[str, int]]) -> None:
        """Number the topics, and forward the partitions to the reader's queue."""
        self._library.rk_reader_release(self._reader)
        for topic in topics:
            _enough(self._library.rk_reader_topic(self._reader, topic.encode()) == 0)
        for topic, partition in partitions:
            _enough(self._library.rk_reader_partition(self._reader, topic.encode(), partition) == 0)

    def read(self, most_rows: int, most_bytes: int, seconds: float) -> Received:
        """Return the records that have arrived, or wait for one."""
        self._consumer.poll(0)
        found = self._library.rk_read(
            self._reader,
            ctypes.c_int64(most_rows),
            ctypes.c_int64(most_bytes),
            int(seconds * 1000),
            int(self._whole),
        )
        return _received(_enough(found).contents)

    def end(self) -> None:
        """Forget the partitions."""
        self._library.rk_reader_release(self._reader)


def _free(library: ctypes.CDLL, reader_: ctypes.c_void_p, _consumer: Consumer) -> None:
    library.rk_reader_free(reader_)


def _enough(found: Any) -> Any:
    if not found:
        raise MemoryError("there was not enough memory for records of Kafka")
    return ctypes.c_void_p(found) if isinstance(found, int) else found


def _received(chunk: _Chunk) -> Received:
    headers = None
    if chunk.header_name.size:
        names = chunk.bytes("names").decode(errors="replace").split("\0")[:-1]
        name = chunk.numbers("header_name", np.int32)
        headers = Headers(chunk.numbers("header_end", np.int32), names, name, chunk.strings("header_value"))
    records = Records(
        "",
        chunk.numbers("partition", np.int32),
        chunk.numbers("offset", np.int64),
        chunk.strings("value"),
        chunk.strings("key"),
        headers,
        chunk.numbers("timestamp", np.int64),
    )
    return Received(chunk.numbers("topic", np.int32), records, _events(chunk.bytes("events")))


def _events(data: bytes) -> list[PartitionEvent]:
    events, at = [], 0
    while at < len(data):
        code, topic, partition, size, offset = _EVENT.unpack_from(data, at)
        at += _EVENT.size + size
        events.append(
            PartitionEvent(topic, partition, offset, KafkaError(code, data[at - size : at].decode(errors="replace")))
        )
    return events


def produce(
    producer: Any,
    topic: str,
    values: pa.BinaryArray,
    keys: pa.BinaryArray | None,
    partitions: npt.NDArray[np.int32] | None,
    header: tuple[str, Sequence[bytes], Int8s] | None,
) -> bool:
    """Hand records to a producer that reports no deliveries, waiting while its queue is full. Raises KafkaException.

    `partitions`: None if the producer's partitioner decides. `header`: its name, its words, and for each record the
    number of its word. Return whether this could be done: False if the library was not compiled.
    """
    library = _library()
    if library is None:
        return False
    name, word, of = (None, None, None) if header is None else (header[0].encode(), binary(header[1]), header[2])
    error = ctypes.c_int()
    row, count = 0, len(values)
    arguments = (
        ctypes.byref(_strings(values)),
        ctypes.byref(_strings(keys)),
        None if partitions is None else native.address(np.ascontiguousarray(partitions, np.int32)),
        name,
        None if of is None else native.address(np.ascontiguousarray(of, np.int8)),
        ctypes.byref(_strings(word)),
    )
    while row < count:
        row = library.rk_produce(
            _client(producer),
            topic.encode(),
            ctypes.c_int64(row),
            ctypes.c_int64(count),
            *arguments,
            ctypes.byref(error),
        )
        if error.value == KafkaError._QUEUE_FULL:  # noqa: SLF001 - librdkafka's own codes have an underscore
            producer.poll(_ROOM_SECONDS)
        elif error.value:
            raise KafkaException(KafkaError(error.value))
    return True


def _strings(array: pa.BinaryArray | None) -> _Strings:
    """Return the addresses of an array's parts, which live as long as the result."""
    if array is None:
        return _Strings()
    parts = [offsets_of(array), data_of(array), *([validity(array)] if array.null_count else [])]
    strings = _Strings(*map(native.address, parts))
    strings.parts = parts
    return strings
