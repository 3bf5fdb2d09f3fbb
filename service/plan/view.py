"""Uses of the job's views in a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A use of one of the job's views in a query. `columns` are the names that all its columns have there.

    A view that is used several times is planned separately; `kept` are then the positions of the columns that any
    query reads. If the view is planned as part of this query, `kept` is None.
    """

    name: str
    columns: tuple[str, ...]
    kept: frozenset[int] | None = None

    @property
    def wanted(self) -> set[str]:
        """The names of the columns that any query reads."""
        return {self.columns[place] for place in self.kept or ()}
