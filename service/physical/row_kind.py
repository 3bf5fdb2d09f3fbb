"""The values that represent row kinds in Kafka headers.

There is no common convention, so a table specifies its header and the spelling of each row kind. `PRESETS` contains
common spellings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rowkind.operators.changelog import RowKind

_WORDS = {b"insert": 0, b"update_before": 1, b"update_after": 2, b"update": 2, b"delete": 3}

PRESETS: Mapping[str, Mapping[bytes, int]] = {
    "rowkind": {b"+I": 0, b"-U": 1, b"+U": 2, b"-D": 3},
    "ordinal": {b"0": 0, b"1": 1, b"2": 2, b"3": 3, b"\x00": 0, b"\x01": 1, b"\x02": 2, b"\x03": 3},
    "words": {**_WORDS, **{word.upper(): kind for word, kind in _WORDS.items()}},
    "debezium": {b"c": 0, b"r": 0, b"u": 2, b"d": 3},
    "diff": {b"1": 0, b"+1": 0, b"-1": 3},
}
"""Presets by name. A preset maps spellings to row kinds. If a kind has several spellings, the first one is written."""


@dataclass(frozen=True)
class RowKindHeader:
    """The header with the row kind of a source topic's records, and the spellings of row kinds in the header.

    `values` maps the header's bytes to the ordinal of the row kind. `missing` is the policy for a record without this
    header, and `unknown` the policy for a header with an unknown value: the record is read as `+I`, becomes a dead
    letter, or fails the query. If a record has several headers with this name, the last one counts.
    """

    header: str = "op"
    values: Mapping[bytes, int] = field(default_factory=lambda: {b"+I": 0, b"-U": 1, b"+U": 2, b"-D": 3})
    missing: Literal["insert", "dead_letter", "fail"] = "dead_letter"
    unknown: Literal["insert", "dead_letter", "fail"] = "dead_letter"


DEFAULT_HEADER = RowKindHeader()


def spellings(values: Mapping[bytes, int]) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the bytes that are written for each of the four kinds, in the order of their ordinals.

    If +U has no spelling, it is written like +I. If -U has no spelling, it is written like -D. Raises ValueError if +I
    or -D has no spelling.
    """
    words: dict[int, bytes] = {}
    for word, kind in values.items():
        words.setdefault(kind, word)
    insert, delete = words.get(RowKind.INSERT), words.get(RowKind.DELETE)
    if insert is None or delete is None:
        raise ValueError("a row kind header must have a spelling for +I and a spelling for -D")
    return insert, words.get(RowKind.UPDATE_BEFORE, delete), words.get(RowKind.UPDATE_AFTER, insert), delete
