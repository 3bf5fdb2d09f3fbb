"""A view of the job in a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view of the job, where a query uses it, and all of its columns by the names that they have there.

    `kept` are the places of those columns that somebody reads, in whichever query, where the view is planned as it
    stands because several do; None where it is planned as a part of this query.
    """

    name: str
    columns: tuple[str, ...]
    kept: frozenset[int] | None = None

    @property
    def wanted(self) -> set[str]:
        """The columns that somebody reads."""
        return {self.columns[place] for place in self.kept or ()}
