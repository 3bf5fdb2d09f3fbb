"""The history of one query: rates, lag, latency, state and busy share of the last hour and the last day.

The values are kept in memory, in two rings of fixed size: 360 slots of 10 s and 288 slots of 5 min. A query's history
thus takes 29 kB. It outlives restarts of the query and of Spark, but not the end of the process: a file in the
checkpoint would cost requests to an object store all day long, and Prometheus keeps longer histories.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, log2
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SummedSeries = Literal["read", "written", "busy"]
"""Quantities that are added up in a slot: rows read, changes written, and seconds of work."""

PeakSeries = Literal["lag_rows", "lag_seconds", "state_rows", "state_bytes"]
"""Quantities whose highest value in a slot is kept, so that a short peak is visible for the whole day."""

QuantileSeries = Literal["latency_p50", "latency_p99"]

HistorySeries = SummedSeries | PeakSeries | QuantileSeries

_SUMS: tuple[SummedSeries, ...] = ("read", "written", "busy")
_QUANTILES: Mapping[QuantileSeries, float] = {"latency_p50": 0.5, "latency_p99": 0.99}
SERIES: tuple[HistorySeries, ...] = (
    *_SUMS,
    "lag_rows",
    "lag_seconds",
    "state_rows",
    "state_bytes",
    "latency_p50",
    "latency_p99",
)
_ROW = {name: row for row, name in enumerate(SERIES)}

RINGS = ((10, 360), (300, 288))
"""The seconds of a slot, and the number of slots: an hour and a day."""

_BINS_PER_OCTAVE = 8
"""Ages are counted in bins whose bounds grow by a factor of 2^(1/8). A quantile is therefore exact to 5 %."""


@dataclass(frozen=True, eq=False)
class HistoryRange:
    """Values of consecutive slots of `seconds` seconds, oldest first. The last slot ended at the Unix time `until`.

    `read` and `written` are rows per second, `busy` is a share from 0 to 1, ages and latencies are in seconds.
    """

    seconds: int
    until: int
    _values: npt.NDArray[np.float64]

    @cached_property
    def measured(self) -> int:
        """The number of slots since the first one in which the job measured anything."""
        found = np.flatnonzero(~np.isnan(self._values).all(axis=0))
        return self._values.shape[1] - int(found[0]) if len(found) else 0

    def series(self, name: HistorySeries) -> list[float | None]:
        """Return the values of a series with four digits, None for slots in which the job did not measure it."""
        values = self._values[_ROW[name]]
        digits = 10.0 ** (3 - np.floor(np.log10(np.maximum(np.abs(values), 1e-9))))
        return [None if value != value else value for value in (np.round(values * digits) / digits).tolist()]  # noqa: PLR0124 - only NaN is unequal to itself


def histories_json(histories: Mapping[str, Sequence[HistoryRange]]) -> str:
    """Return the history of each query as a JSON object. Its keys are the queries' names."""
    return json.dumps({name: list(map(_document, ranges)) for name, ranges in histories.items()})


def _document(over: HistoryRange) -> dict[str, Any]:
    return {"seconds": over.seconds, "until": over.until, "series": {name: over.series(name) for name in SERIES}}


class _Ring:
    def __init__(self, seconds: int, slots: int) -> None:
        self.seconds, self.slots = seconds, slots
        self._values: npt.NDArray[np.float32] = np.full((len(SERIES), slots), np.nan, np.float32)
        self._numbers: npt.NDArray[np.int64] = np.full(slots, -1, np.int64)
        self._current = -1
        self._ages = Counter[int]()

    def slot(self, now: float) -> npt.NDArray[np.float32]:
        """Return the values of the current slot. If the slot is new, the latencies of the slot before are computed."""
        number = max(int(now) // self.seconds, self._current)
        if number != self._current:
            self._end()
            self._current = number
        return self._numbered(number)

    def _numbered(self, number: int) -> npt.NDArray[np.float32]:
        at = number % self.slots
        if self._numbers[at] != number:
            self._numbers[at] = number
            self._values[:, at] = np.nan
            self._values[: len(_SUMS), at] = 0
        return self._values[:, at]

    def spread(self, row: int, value: float, now: float, seconds: float) -> None:
        """Add a value to the slots of the last seconds, each in proportion to its part of this time."""
        current = self.slot(now)
        if seconds < self.seconds:
            current[row] += value
            return
        now = max(now, self._current * self.seconds)
        began = now - min(seconds, self.seconds * (self.slots - 1))
        for number in range(int(began) // self.seconds, self._current + 1):
            part = min(now, (number + 1) * self.seconds) - max(began, number * self.seconds)
            self._numbered(number)[row] += value * part / (now - began)

    def observe(self, age_bin: int, times: float, now: float) -> None:
        self.slot(now)
        self._ages[age_bin] += int(times)

    def _end(self) -> None:
        if self._ages:
            bins = sorted(self._ages)
            below = np.cumsum([self._ages[each] for each in bins])
            for name, share in _QUANTILES.items():
                at = bins[int(np.searchsorted(below, share * below[-1]))]
                middle = 2 ** ((at + 0.5) / _BINS_PER_OCTAVE) / 1000
                self._values[_ROW[name], self._current % self.slots] = middle
            self._ages.clear()

    def range(self, now: float, tasks: int) -> HistoryRange:
        """Return all slots that have ended."""
        self.slot(now)
        ended = np.arange(self._current - self.slots + 1, self._current)
        at = ended % self.slots
        values = np.where(self._numbers[at] == ended, self._values[:, at], np.nan).astype(np.float64)
        values[[_ROW["read"], _ROW["written"]]] /= self.seconds
        values[_ROW["busy"]] = np.minimum(1, values[_ROW["busy"]] / (self.seconds * tasks))
        return HistoryRange(self.seconds, self._current * self.seconds, values)


class QueryHistory:
    """The history of a query. Every parameter `now` is Unix time in seconds."""

    def __init__(self) -> None:
        self._rings = tuple(_Ring(*each) for each in RINGS)

    def add(self, name: SummedSeries, value: float, now: float, seconds: float = 0.0) -> None:
        """Add rows, or seconds of work, of a batch that has taken this many seconds and has just ended."""
        for ring in self._rings:
            ring.spread(_ROW[name], value, now, seconds)

    def raise_to(self, name: PeakSeries, value: float, now: float) -> None:
        """Raise a quantity of the current slots to this value, unless it has been higher."""
        for ring in self._rings:
            slot = ring.slot(now)
            slot[_ROW[name]] = np.fmax(slot[_ROW[name]], value)

    def observe(self, seconds: float, times: float, now: float) -> None:
        """Count a latency that `times` records had."""
        age_bin = floor(log2(max(1.0, seconds * 1000)) * _BINS_PER_OCTAVE)
        for ring in self._rings:
            ring.observe(age_bin, times, now)

    def ranges(self, now: float, tasks: int) -> tuple[HistoryRange, ...]:
        """Return the last hour and the last day of a query that has this many tasks."""
        return tuple(ring.range(now, tasks) for ring in self._rings)
