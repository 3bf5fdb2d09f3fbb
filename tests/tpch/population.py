"""TPC-H's tables, generated column by column from row numbers: the same rows for the same seed.

The generator follows the specification, 4.2.3, as far as the 22 queries depend on it: keys, the number of rows of one
table per row of another, dates and values derived from them, prices, and the selectivity of conditions. Text consists
of random words without the grammar of dbgen, so the rows are not dbgen's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tests.tpch.words import ADJECTIVES, ADVERBS, INSTRUCTIONS, NATIONS, NOUNS, PRIORITIES, REGIONS, TODAY, VERBS, Words

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, pa.Array]
"""The rows of a table, by column."""

MONEY = pa.decimal128(15, 2)
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789 ,"))
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Extent:
    """The number of suppliers, parts, customers and orders, and of suppliers per part."""

    suppliers: int
    parts: int
    customers: int
    orders: int
    suppliers_of_part: int = 4

    @classmethod
    def of(cls, scale: float) -> Extent:
        """Return the extent for a scale factor of at least 0.001."""
        return cls(*(round(scale * count) for count in (10_000, 200_000, 150_000, 1_500_000)))


@dataclass(frozen=True)
class Population:
    """Generator of rows of every table; each call draws new values, except those determined by the row numbers."""

    words: Words
    extent: Extent
    rng: np.random.Generator

    def everything(self) -> dict[str, Columns]:
        """Return all tables in their initial state."""
        return {**self.smaller(), **self.orders(order_keys(np.arange(self.extent.orders)))}

    def smaller(self) -> dict[str, Columns]:
        """Return all tables except orders and their lines in their initial state."""
        suppliers, parts, customers = (np.arange(1, count + 1) for count in self._counts())
        partsupp = np.repeat(parts, self.extent.suppliers_of_part)
        place = np.tile(np.arange(self.extent.suppliers_of_part), len(parts))
        return {
            "region": self.region(np.arange(len(REGIONS))),
            "nation": self.nation(np.arange(len(NATIONS))),
            "supplier": self.supplier(suppliers),
            "part": self.part(parts),
            "partsupp": self.partsupp(partsupp, self._supplier_of(partsupp, place)),
            "customer": self.customer(customers),
        }

    def region(self, keys: Ints) -> Columns:
        """Return the regions with these numbers."""
        names = np.array(REGIONS)[keys]
        return {"r_regionkey": pa.array(keys), "r_name": pa.array(names), "r_comment": self._text(len(keys))}

    def nation(self, keys: Ints) -> Columns:
        """Return the nations with these numbers."""
        names, regions = (np.array(each) for each in zip(*NATIONS, strict=True))
        return {
            "n_nationkey": pa.array(keys),
            "n_name": pa.array(names[keys]),
            "n_regionkey": pa.array(regions[keys]),
            "n_comment": self._text(len(keys)),
        }

    def supplier(self, keys: Ints) -> Columns:
        """Return suppliers, a few of them with customer complaints."""
        nations, comments = self._one_of(self.words.nations, len(keys)), self._text(len(keys))
        complaints = pa.array(self.rng.integers(0, self.words.complaints, len(keys)) == 0)
        return {
            "s_suppkey": pa.array(keys),
            "s_name": _numbered("Supplier#", keys),
            "s_address": self._address(len(keys)),
            "s_nationkey": pa.array(nations),
            "s_phone": self._phone(nations),
            "s_acctbal": self._money(-99_999, 999_999, len(keys)),
            "s_comment": pc.if_else(complaints, _joined(comments, "Customer", "Complaints"), comments),
        }

    def customer(self, keys: Ints) -> Columns:
        """Return customers."""
        nations = self._one_of(self.words.nations, len(keys))
        return {
            "c_custkey": pa.array(keys),
            "c_name": _numbered("Customer#", keys),
            "c_address": self._address(len(keys)),
            "c_nationkey": pa.array(nations),
            "c_phone": self._phone(nations),
            "c_acctbal": self._money(-99_999, 999_999, len(keys)),
            "c_mktsegment": self._word(self.words.segments, len(keys)),
            "c_comment": self._text(len(keys)),
        }

    def part(self, keys: Ints) -> Columns:
        """Return parts; their prices depend on their numbers."""
        lists = (self.words.brands, self.words.types, self.words.sizes, self.words.containers)
        places = [self.rng.integers(0, len(each), len(keys)) for each in lists]
        if self.words.together:
            places = places[:1] * len(lists)
        brands, types, sizes, containers = (np.array(each)[at] for each, at in zip(lists, places, strict=True))
        colors = np.argsort(self.rng.random((len(keys), len(self.words.colors))), axis=1)[:, :5]
        names = [pa.array(np.array(self.words.colors)[place]) for place in colors.T]
        brand = pa.array(brands)
        return {
            "p_partkey": pa.array(keys),
            "p_name": _joined(*names),
            "p_mfgr": pc.binary_join_element_wise("Manufacturer", pc.utf8_slice_codeunits(brand, 5, 7), ""),
            "p_brand": brand,
            "p_type": pa.array(types),
            "p_size": pa.array(sizes.astype(np.int32)),
            "p_container": pa.array(containers),
            "p_retailprice": money(_price_of(keys)),
            "p_comment": self._text(len(keys)),
        }

    def partsupp(self, parts: Ints, suppliers: Ints) -> Columns:
        """Return the stock of a part at a supplier, pair by pair."""
        return {
            "ps_partkey": pa.array(parts),
            "ps_suppkey": pa.array(suppliers),
            "ps_availqty": pa.array(self.rng.integers(1, 10_000, len(parts)).astype(np.int32)),
            "ps_supplycost": self._money(100, 100_000, len(parts)),
            "ps_comment": self._text(len(parts)),
        }

    def orders(self, keys: Ints) -> dict[str, Columns]:
        """Return orders and their lines, as `orders` and `lineitem`. A third of the customers have no orders."""
        customers = self.rng.integers(1, self.extent.customers + 1, len(keys))
        customers = np.where(customers % 3 == 0, np.maximum(customers - 1, 1), customers)
        first_days = np.array([(day - _EPOCH).days for day in self.words.first_days])
        days = self._one_of(first_days, len(keys)) + self.rng.integers(0, self.words.days, len(keys))
        counts = self._one_of(self.words.lines, len(keys))
        of = np.repeat(np.arange(len(keys)), counts)
        number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        lines, charges, shipped = self._lines(keys[of], days[of], number)
        open_ = np.bincount(of, ~shipped, len(keys)).astype(np.int64)
        orders = {
            "o_orderkey": pa.array(keys),
            "o_custkey": pa.array(customers),
            "o_orderstatus": pa.array(["F", "O", "P"]).take(pa.array(np.where(open_ == 0, 0, 2 - (open_ == counts)))),
            "o_totalprice": money(np.bincount(of, charges, len(keys)).astype(np.int64)),
            "o_orderdate": _day(days),
            "o_orderpriority": self._word(PRIORITIES, len(keys)),
            "o_clerk": _numbered("Clerk#", self.rng.integers(1, max(2, self.extent.orders // 1500), len(keys))),
            "o_shippriority": pa.array(np.zeros(len(keys), np.int32)),
            "o_comment": self._text(len(keys)),
        }
        return {"orders": orders, "lineitem": lines}

    def _lines(self, orders: Ints, ordered: Ints, number: Ints) -> tuple[Columns, Ints, npt.NDArray[np.bool_]]:
        """Return lines with these numbers, their charges in cents with tax, and whether they were shipped by today."""
        count, today = len(orders), (TODAY - _EPOCH).days
        parts = self.rng.integers(1, self.extent.parts + 1, count)
        quantity = self._one_of(self.words.quantities, count)
        price = quantity * _price_of(parts)
        discount, tax = self.rng.integers(0, 11, count), self.rng.integers(0, 9, count)
        shipped = ordered + self.rng.integers(1, 122, count)
        received = shipped + self.rng.integers(1, 31, count)
        returned = np.where(received > today, 2, self.rng.integers(0, 2, count))
        columns = {
            "l_orderkey": pa.array(orders),
            "l_partkey": pa.array(parts),
            "l_suppkey": pa.array(self._supplier_of(parts, self.rng.integers(0, self.extent.suppliers_of_part, count))),
            "l_linenumber": pa.array(number.astype(np.int32)),
            "l_quantity": money(quantity * 100),
            "l_extendedprice": money(price),
            "l_discount": money(discount),
            "l_tax": money(tax),
            "l_returnflag": pa.array(["R", "A", "N"]).take(pa.array(returned)),
            "l_linestatus": pc.if_else(pa.array(shipped > today), "O", "F"),
            "l_shipdate": _day(shipped),
            "l_commitdate": _day(ordered + self.rng.integers(30, 91, count)),
            "l_receiptdate": _day(received),
            "l_shipinstruct": self._word(INSTRUCTIONS, count),
            "l_shipmode": self._word(self.words.modes, count),
            "l_comment": self._text(count, long=False),
        }
        return columns, price * (100 + tax) * (100 - discount) // 10_000, shipped <= today

    def _supplier_of(self, parts: Ints, place: Ints) -> Ints:
        """Return the supplier of a part at a place among the part's suppliers."""
        count = self.extent.suppliers
        return (parts + place * (count // self.extent.suppliers_of_part + (parts - 1) // count)) % count + 1

    def _counts(self) -> tuple[int, int, int]:
        return self.extent.suppliers, self.extent.parts, self.extent.customers

    def _one_of(self, values: Sequence[int] | Ints, count: int) -> Ints:
        return np.array(values)[self.rng.integers(0, len(values), count)]

    def _word(self, values: Sequence[str], count: int) -> pa.Array:
        return pa.array(values).take(pa.array(self.rng.integers(0, len(values), count)))

    def _text(self, count: int, *, long: bool = True) -> pa.Array:
        """Return random sentences; a few of the long ones mention special requests."""
        lists = (ADVERBS, ADJECTIVES, NOUNS, VERBS) + ((ADVERBS, ADJECTIVES, NOUNS) if long else ())
        return _joined(*(self._word(each.split(), count) for each in lists))

    def _address(self, count: int) -> pa.Array:
        letters = _LETTERS[self.rng.integers(0, len(_LETTERS), (count, 24))]
        return pa.array(np.ascontiguousarray(letters).view("<U24").ravel() if count else [], pa.string())

    def _phone(self, nations: Ints) -> pa.Array:
        """Return phone numbers, whose country code is the nation's number plus ten."""
        parts = [nations + 10, *(self.rng.integers(low, 10 * low, len(nations)) for low in (100, 100, 1000))]
        return pc.binary_join_element_wise(*(pa.array(each).cast(pa.string()) for each in parts), "-")

    def _money(self, low: int, high: int, count: int) -> pa.Array:
        return money(self.rng.integers(low, high + 1, count))


def order_keys(numbers: Ints) -> Ints:
    """Return the keys of orders: the first 8 of every 32 numbers."""
    return numbers // 8 * 32 + numbers % 8 + 1


def money(cents: Ints) -> pa.Array:
    """Return cents as DECIMAL(15,2)."""
    halves = np.stack([cents.astype("<i8"), np.where(cents < 0, -1, 0)], axis=1).astype("<i8")
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(np.ascontiguousarray(halves))])


def _price_of(parts: Ints) -> Ints:
    """Return the retail price of a part in cents."""
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1000)


def _day(days: Ints) -> pa.Array:
    return pa.array(days.astype(np.int32), pa.date32())


def _numbered(prefix: str, numbers: Ints) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def _joined(*words: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*words, " ")
