"""The Confluent wire format, which identifies the schema of each value. All functions process whole columns.

Three forms are in use, and a topic may contain all of them:

- byte 0, the schema's id in 4 bytes big-endian, the Avro value;
- byte 1, the schema's GUID in 16 bytes, the Avro value;
- the bare Avro value, with one of the two prefixes in the header `__key_schema_id` or `__value_schema_id`.

With framing "none", `split` treats values as plain Avro under the schema that the job declares.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.buffers import Bools, Bytes, Ints, expand, spans
from rowkind.avro.cursor import FRONT, PaddedBytes

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

Framing = Literal["confluent", "none"]
SchemaId = int | uuid.UUID | None
"""A schema's id or GUID in its registry; None means the schema that the job declares."""

_NOT_FRAMED, _SHORT, _MISSING = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Framed:
    """Values whose frames have been removed.

    - `schemas`: the schemas that occur. `schema`: the index of each row's schema in `schemas`, or -1 for bad rows.
    - `payload`: the Avro values, with empty bytes for bad rows.
    """

    schemas: tuple[SchemaId, ...]
    schema: Ints
    payload: pa.BinaryArray
    _fault: Bytes
    _values: pa.BinaryArray

    @property
    def bad(self) -> Bools:
        """A mask of the rows whose frame cannot be read."""
        bad: Bools = self._fault != 0
        return bad

    def reason(self, row: int, what: str = "value") -> str:
        """Describe what is wrong with a bad row, for messages. `what`: the name for the rows, such as `value`."""
        match int(self._fault[row]):
            case 0:
                return "nothing is wrong"
            case 1:
                first = self._values[row].as_py()[:1]
                hint = "; it looks like JSON" if first in (b"{", b"[") else ""
                return f"the {what} begins with byte 0x{first.hex()}: it was not written with a schema registry{hint}"
            case 2:
                return f"the {what} is too short to contain a schema id"
            case _:
                return f"there is no {what}"


def split(values: pa.BinaryArray, headers: pa.BinaryArray | None = None, framing: Framing = "confluent") -> Framed:
    """Remove the frames from a column of keys or values.

    `headers`: the contents of the header with the schema's id, null for records without this header. A header takes
    precedence over the value's prefix. A null value counts as bad, because only the caller knows the meaning of null.
    """
    source = PaddedBytes(values)
    fault: Bytes = np.zeros(len(values), np.uint8)
    if source.missing is not None:
        fault[source.missing] = _MISSING
    if framing == "none":
        return Framed((None,), np.where(fault == 0, 0, -1), _cut(source, source.starts, fault), fault, values)
    prefixes = _prefixes(source)
    if headers is not None and headers.null_count < len(headers):
        prefixes = _headed(prefixes, headers)
    fault = np.where(fault == 0, prefixes.fault, fault)
    payload = _cut(source, np.minimum(source.starts + prefixes.length, source.ends), fault)
    return Framed(*prefixes.schemas(fault == 0), payload, fault, values)


def frame(schema_id: int, payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Prefix Avro values with a frame with this schema id. Null stays null."""
    return pc.binary_join_element_wise(pa.scalar(struct.pack(">bI", 0, schema_id)), payloads, b"")


def _cut(source: PaddedBytes, starts: Ints, fault: Bytes) -> pa.BinaryArray:
    good = fault == 0
    if good.all():
        return spans(source.data[FRONT:], starts - FRONT, source.ends - FRONT)
    return expand(spans(source.data[FRONT:], starts[good] - FRONT, source.ends[good] - FRONT), good)


@dataclass(frozen=True, slots=True)
class _Prefixes:
    """Each row's prefix: its fault, the schema's id or -1, the GUID in four words, and the prefix's length."""

    fault: Bytes
    number: Ints
    guid: npt.NDArray[np.int64]
    length: Ints

    def schemas(self, good: Bools) -> tuple[tuple[SchemaId, ...], Ints]:
        """Return the schemas that occur in good rows, and the index of each row's schema, or -1 for bad rows."""
        number = self.number
        if len(number) and number[0] >= 0 and good.all() and (number == number[0]).all():
            # Nearly always, all rows have the same schema, which is quick to check.
            return (int(number[0]),), np.zeros(len(number), np.int64)
        by_guid = good & (number < 0)
        schema = np.full(len(number), -1, np.int64)
        plain = good & ~by_guid
        ids, inverse = np.unique(number[plain], return_inverse=True)
        schema[plain] = inverse
        schemas: list[SchemaId] = [int(id_) for id_ in ids]
        if by_guid.any():
            found, inverse = np.unique(self.guid[by_guid], axis=0, return_inverse=True)
            schema[by_guid] = len(schemas) + inverse.ravel()
            schemas.extend(uuid.UUID(bytes=row.astype(">u4").tobytes()) for row in found)
        return tuple(schemas), schema


def _headed(own: _Prefixes, headers: pa.BinaryArray) -> _Prefixes:
    """Take prefixes from the headers of records that have this header. The values of these records have no prefix."""
    headed = np.asarray(headers.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    theirs = _prefixes(PaddedBytes(headers))
    return _Prefixes(
        np.where(headed, theirs.fault, own.fault),
        np.where(headed, theirs.number, own.number),
        np.where(headed[:, None], theirs.guid, own.guid),
        np.where(headed, 0, own.length),
    )


def _prefixes(source: PaddedBytes) -> _Prefixes:
    magic = source.data[source.starts]
    size = source.ends - source.starts
    word = source.words[source.starts].byteswap()
    is_guid = magic == 1
    length = np.where(is_guid, 17, 5)
    fault = np.where(magic > 1, np.uint8(_NOT_FRAMED), np.where(size < length, np.uint8(_SHORT), np.uint8(0)))
    fault[size == 0] = _SHORT
    number = ((word >> np.uint64(24)) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    guid = np.zeros((len(size), 4), np.int64)
    rows = np.flatnonzero(is_guid & (fault == 0))
    if len(rows):
        number[rows] = -1
        at = source.starts[rows] + 1
        for i in range(2):
            words = source.words[at + 8 * i].byteswap()
            guid[rows, 2 * i] = (words >> np.uint64(32)).astype(np.int64)
            guid[rows, 2 * i + 1] = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return _Prefixes(fault, number, guid, length)
