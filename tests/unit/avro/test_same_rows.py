"""Canonical bytes of rows: rows that SQL calls equal have equal bytes, and other rows do not."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record

SEED = 3
_ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
_RECORD = Record.of(
    {
        "k": "INT",
        "x": "DOUBLE",
        "f": "FLOAT NOT NULL",
        "a": "ARRAY<ARRAY<DOUBLE>>",
        "s": "STRUCT<v: DOUBLE, m: MAP<STRING, DOUBLE>>",
        "m": "MAP<STRING, STRUCT<w: FLOAT, t: STRING>>",
    }
)


def _other(value: Any, dice: random.Random) -> Any:
    """Return an equal value in a different representation."""
    match value:
        case float() if value == 0:
            return dice.choice([0.0, -0.0])
        case float() if math.isnan(value):
            return dice.choice([math.nan, _ODD_NAN])
        case list():
            return [_other(each, dice) for each in value]
        case dict():
            entries = list(value.items())
            return {name: _other(each, dice) for name, each in dice.sample(entries, len(entries))}
    return value


def _pack(rows: list[dict[str, Any]]) -> pa.BinaryArray:
    columns = {}
    for field in _RECORD.fields:
        values = [
            list(row["m"].items()) if field.name == "m" and row["m"] is not None else row[field.name] for row in rows
        ]
        columns[field.name] = pa.array(values, field.type.arrow)
    return codec.encode(_RECORD, columns, len(rows))


def test_equal_rows_have_equal_bytes_and_others_do_not() -> None:
    """Rows are equal in canonical form at any depth, with NULLs and empty arrays, and in slices of columns."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)

    def number() -> float | None:
        return dice.choice([0.0, -0.0, math.nan, 1.5, -1.5, None])

    def entries() -> dict[str, float | None]:
        return {name: number() for name in dice.sample("abcd", dice.randrange(4))}

    rows = [
        {
            "k": key,
            "x": number(),
            "f": number() or 0.0,
            "a": dice.choice([None, [], [[number(), number()], None, []]]),
            "s": dice.choice([None, {"v": number(), "m": entries()}]),
            "m": dice.choice([None, {name: {"w": each, "t": name} for name, each in entries().items()}]),
        }
        for key in range(200)
    ]
    same = SameRows(_RECORD)

    packed, others = _pack(rows), _pack([_other(row, dice) for row in rows])

    assert not packed.equals(others)
    assert same(packed).equals(same(others))
    assert same(packed.slice(50)).equals(same(others).slice(50))
    assert len(set(same(packed).to_pylist())) == len(rows)
    changed = _pack([{**row, "x": 2.5} for row in rows])
    assert not set(same(packed).to_pylist()) & set(same(changed).to_pylist())
