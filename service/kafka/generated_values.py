"""Generate columns of random values. A value is a function of a seed, its column and a number, and needs no state.

The random numbers are a hash of the number (SplitMix64), so any rows of a table can be generated again at any time.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rowkind.avro.type import Type
from rowkind.operators.columns.changes import Int64s, Mask, Uint64s
from rowkind.service.physical.generation import ColumnValues

Float64s = npt.NDArray[np.float64]

_LETTERS = np.frombuffer(string.ascii_lowercase.encode(), np.uint8)
_BYTES = np.arange(256, dtype=np.uint8)
_LARGEST = 999
"""Whole numbers are at most this unless a range is given, so that groups and joins find equal values."""
_LENGTH = 8
"""The default length of texts and bytes."""
_FEW = 3
"""The default length of arrays and maps."""
_DAY_US = 86_400_000_000
_DAYS_BACK = 365
_LATE_US = 600_000_000
_ALL = 1 << 64
"""How many whole numbers a random number can choose from."""


def draws(seed: int, name: str, numbers: Int64s) -> Uint64s:
    """Return a random number for each of `numbers`; `name` separates independent draws."""
    salt = int.from_bytes(blake2b(f"{seed}:{name}".encode(), digest_size=8).digest(), "little")
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Uint64s = mixed ^ (mixed >> np.uint64(31))
    return found


def shares(drawn: Uint64s) -> Float64s:
    """Return random numbers as fractions in [0, 1)."""
    found: Float64s = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found


def zipf(share: Float64s, count: Int64s | int, skew: float) -> Int64s:
    """Return ranks from 0 to `count` - 1 with Zipf's distribution; all are equally likely if `skew` is 0.

    This is the inverse of the continuous distribution with the density x ** -skew on [1, count + 1).
    """
    last, power = np.asarray(count, np.float64) + 1, 1 - skew
    found = (1 + share * (last**power - 1)) ** (1 / power) if power else last**share
    rank: Int64s = np.minimum(found.astype(np.int64), count) - 1
    return rank


@dataclass(frozen=True)
class GeneratedValues:
    """The values of one column for some rows.

    `numbers`: the number from which each row's value is derived, which is also its position in a sequence, from 0.
    `times_us`: the time of each row in microseconds since the epoch.
    """

    name: str
    type: Type
    of: ColumnValues
    seed: int
    numbers: Int64s
    times_us: Int64s

    def column(self) -> pa.Array:
        """Return the values as an array of the type's Arrow type, with NULLs where the type allows them."""
        found = self._sequence() if self.of.kind == "sequence" else self._random()
        found = found.cast(self.type.arrow, safe=False)
        if not self.of.null_rate or not self.type.nullable:
            return found
        missing = self._shares("null") < self.of.null_rate
        return pc.if_else(pa.array(missing), pa.scalar(None, found.type), found)

    def _sequence(self) -> pa.Array:
        if self.type.required.sql.startswith("DECIMAL"):
            return self._decimals((self.of.start + self.numbers) * 10**self.type.scale)
        return pa.array(self.of.start + self.numbers)

    def _random(self) -> pa.Array:
        if self.of.values:
            return self._chosen(self.of.values)
        name = self.type.logical or self.type.kind
        if "timestamp" in name:
            return self._times(self._moments())
        makers: Mapping[str, Callable[[], pa.Array]] = {
            "array": self._arrays,
            "boolean": lambda: pa.array(self._draws() % np.uint64(2) == 1),
            "bytes": lambda: self._texts(pa.binary(), _BYTES, self._lengths(_LENGTH)),
            "date": lambda: pa.array((self._moments() // _DAY_US - self._whole(0, _DAYS_BACK - 1)).astype(np.int32)),
            "decimal": self._random_decimals,
            "double": self._fractions,
            "enum": lambda: self._chosen(self.type.symbols),
            "fixed": lambda: self._texts(pa.binary(), _BYTES, np.full(len(self.numbers), self.type.size)),
            "float": self._fractions,
            "int": lambda: pa.array(self._numbers()),
            "long": lambda: pa.array(self._numbers()),
            "map": self._maps,
            "record": self._records,
            "time-micros": lambda: pa.array(self._moments() % _DAY_US, pa.time64("us")),
            "time-millis": lambda: pa.array((self._moments() % _DAY_US // 1000).astype(np.int32), pa.time32("ms")),
            "uuid": lambda: pa.array([str(UUID(int=(a << 64) | b)) for a, b in self._pairs()]),
        }
        return makers.get(name, lambda: self._texts(pa.string(), _LETTERS, self._lengths(_LENGTH)))()

    def _draws(self, purpose: str = "") -> Uint64s:
        return draws(self.seed, f"{self.name}/{purpose}", self.numbers)

    def _shares(self, purpose: str = "") -> Float64s:
        return shares(self._draws(purpose))

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._draws("high").tolist(), self._draws("low").tolist(), strict=True))

    def _whole(self, least: int, most: int) -> Int64s:
        """Return whole numbers from `least` to `most`, the least most often if there is a skew."""
        count = most - least + 1
        if self.of.skew:
            return least + zipf(self._shares(), count, self.of.skew)
        drawn = self._draws()
        return least + (drawn % np.uint64(count) if count < _ALL else drawn).astype(np.int64)

    def _numbers(self) -> Int64s:
        least = min(0, self.of.max or 0) if self.of.min is None else self.of.min
        return self._whole(int(least), int(least + _LARGEST if self.of.max is None else self.of.max))

    def _fractions(self) -> pa.Array:
        least = self.of.min or 0.0
        most = least + _LARGEST + 1 if self.of.max is None else self.of.max
        return pa.array(np.round(least + self._shares() * (most - least), 3))

    def _random_decimals(self) -> pa.Array:
        scale = self.type.scale
        least = round((self.of.min or 0) * 10**scale)
        widest = 10 ** min(self.type.precision, 3 + scale, 18) - 1
        most = least + widest if self.of.max is None else round(self.of.max * 10**scale)
        return self._decimals(self._whole(least, most))

    def _decimals(self, unscaled: Int64s) -> pa.Array:
        """Return decimals from whole numbers of their last digit. Arrow stores them as 16 bytes, the low ones first."""
        words = np.empty((len(unscaled), 2), np.int64)
        words[:, 0], words[:, 1] = unscaled, unscaled >> 63
        type_ = pa.decimal128(38, self.type.scale)
        return pa.Array.from_buffers(type_, len(unscaled), [None, pa.py_buffer(words)])

    def _moments(self) -> Int64s:
        past = int(1000 * self.of.max_past_ms)
        return self.times_us - (self._draws("past") % np.uint64(past + 1)).astype(np.int64)

    def _times(self, moments: Int64s) -> pa.Array:
        zone = None if (self.type.logical or "").startswith("local") else "UTC"
        return pa.array(moments, pa.timestamp("us", zone))

    def _chosen(self, values: tuple[str, ...]) -> pa.Array:
        return pa.array(values).take(pa.array(self._whole(0, len(values) - 1)))

    def _lengths(self, usual: int) -> Int64s:
        longest = usual if self.of.length is None else self.of.length
        if not self.of.var_len:
            return np.full(len(self.numbers), longest, np.int64)
        return 1 + (self._draws("length") % np.uint64(longest)).astype(np.int64)

    def _texts(self, type_: pa.DataType, letters: npt.NDArray[np.uint8], lengths: Int64s) -> pa.Array:
        at, starts = _positions(lengths)
        drawn = draws(self.seed, f"{self.name}/letter", np.repeat(self.numbers, lengths) * 1_000_003 + at)
        chars = letters[(drawn % np.uint64(len(letters))).astype(np.int64)]
        buffers = [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(chars)]
        return pa.Array.from_buffers(type_, len(lengths), buffers)

    def _items(self, lengths: Int64s) -> tuple[pa.Array, pa.Array]:
        """Return the start of each row's items, and the items of all rows."""
        assert self.type.items is not None, "arrays and maps have items"
        at, starts = _positions(lengths)
        numbers = np.repeat(self.numbers, lengths) * 1_009 + at
        times = np.repeat(self.times_us, lengths)
        items = GeneratedValues(f"{self.name}/item", self.type.items, ColumnValues(), self.seed, numbers, times)
        return pa.array(starts.astype(np.int32)), items.column()

    def _arrays(self) -> pa.Array:
        starts, items = self._items(self._lengths(_FEW))
        return pa.ListArray.from_arrays(starts, items)

    def _maps(self) -> pa.Array:
        lengths = np.minimum(self._lengths(_FEW), len(_LETTERS))
        starts, items = self._items(lengths)
        keys = pa.array(list(string.ascii_lowercase)).take(pa.array(_positions(lengths)[0]))
        return pa.MapArray.from_arrays(starts, keys, items)

    def _records(self) -> pa.Array:
        parts = [
            replace(self, name=f"{self.name}.{field.name}", type=field.type, of=ColumnValues()).column()
            for field in self.type.fields
        ]
        return pa.StructArray.from_arrays(parts, [field.name for field in self.type.fields])


def _positions(lengths: Int64s) -> tuple[Int64s, Int64s]:
    """Return each item's position within its row, and the start of each row's items, with the end as the last."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    at: Int64s = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return at, starts


def late(times_us: Int64s, where: Mask) -> Int64s:
    """Return times of which those at `where` are 10 minutes older."""
    return times_us - np.where(where, _LATE_US, 0)
