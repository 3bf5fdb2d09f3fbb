"""Rankings: which rows of each partition a rank selects. The query, the plan and the operator use the same value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RankFunction = Literal["row_number", "rank", "dense_rank"]
Ties = Literal["earliest first", "latest first"]
Strategy = Literal["append", "improving", "retract"]


@dataclass(frozen=True, slots=True)
class Ranking:
    """A selection of the rows whose number within their partition is from `first` to `last`.

    Numbers start at 1; if `last` is None, there is no upper bound. `function` assigns the numbers. `ties` says whether
    ROW_NUMBER ranks the earliest or the latest arrival first among tied rows; the other two functions give tied rows
    equal numbers. `strategy` says which changes the input may have: only insertions, replacements by better rows, or
    any retractions. If there is no upper bound, numbers above `settled` are not distinguished; None if all numbers are
    distinguished.
    """

    function: RankFunction
    first: int
    last: int | None
    ties: Ties = "earliest first"
    strategy: Strategy = "retract"
    settled: int | None = None

    def __post_init__(self) -> None:
        assert self.first >= 1, "a range of numbers must begin at 1 or later"
        assert self.last is None or self.first <= self.last, "a range of numbers must not end before it begins"
        assert self.function != "dense_rank" or self.strategy != "improving", "`improving` does not support DENSE_RANK"
        assert self.last is not None or self.strategy == "retract", "without `last`, the strategy must be `retract`"
        assert self.settled is None or (self.last is None and self.settled >= self.first - 1), (
            "`settled` excludes `last`, and must be at least `first` - 1"
        )

    @property
    def takes_one(self) -> bool:
        """Whether the ranking selects at most one row per partition, which makes it a deduplication."""
        return self.function == "row_number" and self.last == 1
