"""The Confluent wire format, column by column."""

from __future__ import annotations

import struct
import uuid

import numpy as np
import pyarrow as pa

from rowkind.avro.framing import frame, split

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
OTHER = uuid.UUID(int=0)


def test_ids_and_guids_are_told_apart() -> None:
    """Rows with an ID and rows with a GUID are grouped by schema, and the prefix is removed from their payloads."""
    rows = [
        b"\x00" + struct.pack(">I", 100001) + b"one",
        b"\x01" + GUID.bytes + b"two",
        b"\x00" + struct.pack(">I", 4294967295),
        b"\x01" + OTHER.bytes + b"three",
        b"\x00" + struct.pack(">I", 100001) + b"four",
    ]
    framed = split(pa.array([b"before", *rows, b"after"]).slice(1, len(rows)))
    assert not framed.bad.any()
    assert [framed.schemas[i] for i in framed.schema] == [100001, GUID, 4294967295, OTHER, 100001]
    assert framed.payload.to_pylist() == [b"one", b"two", b"", b"three", b"four"]


def test_rows_without_a_readable_frame_are_bad() -> None:
    """Each bad row has a reason and an empty payload; the other rows are read."""
    framed = split(pa.array([b'{"a": 1}', b"", b"\x00\x00\x00", b"\x01abc", None, b"\x00\x00\x00\x00\x01x"]))
    assert framed.bad.tolist() == [True] * 5 + [False]
    assert framed.schema.tolist() == [-1] * 5 + [0]
    assert framed.schemas == (1,)
    assert framed.payload.to_pylist() == [b""] * 5 + [b"x"]
    assert framed.reason(0) == (
        "the value begins with byte 0x7b: it was not written with a schema registry; it looks like JSON"
    )
    assert [framed.reason(i) for i in (1, 2, 3)] == ["the value is too short to contain a schema id"] * 3
    assert framed.reason(4) == "there is no value"


def test_a_header_counts_for_more_than_the_value() -> None:
    """If a header names the schema, the whole value is the payload; otherwise the value's own prefix is used."""
    values = pa.array([b"\x00bare", b"\x00\x00\x00\x00\x07own", b"bare too", b"x"])
    headers = pa.array([b"\x01" + GUID.bytes, None, b"\x00\x00\x00\x00\x08", b"\x05"])
    framed = split(values, headers)
    assert framed.bad.tolist() == [False, False, False, True]
    assert [framed.schemas[i] for i in framed.schema[:3]] == [GUID, 7, 8]
    assert framed.payload.to_pylist() == [b"\x00bare", b"own", b"bare too", b""]


def test_plain_avro_has_no_frame() -> None:
    """With framing "none", the declared schema applies to every row that has a value."""
    framed = split(pa.array([b"\x00abc", None]), framing="none")
    assert framed.schemas == (None,)
    assert framed.schema.tolist() == [0, -1]
    assert framed.payload.to_pylist() == [b"\x00abc", b""]


def test_framing_and_splitting_are_inverse() -> None:
    """Framed payloads split into the ID and the same payloads; null stays null."""
    payloads = pa.array([b"a", b"", b"abc" * 100])
    framed = split(frame(42, payloads))
    assert framed.schemas == (42,)
    assert framed.payload.equals(payloads)
    assert frame(42, pa.array([None], pa.binary())).to_pylist() == [None]


def test_no_rows() -> None:
    """An empty column splits into no payloads and no schemas."""
    framed = split(pa.array([], pa.binary()))
    assert len(framed.payload) == len(framed.schema) == 0
    assert framed.schemas == ()
    assert framed.schema.dtype == np.int64
