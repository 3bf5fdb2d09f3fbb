"""Uses of the job's views in a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A use of one of the job's views in a query. `columns` contains the view's column names in that query.

    A view that is used several times is planned separately. `kept` then contains the positions of the columns that at
    least one query reads. If the view is planned as part of this query, `kept` is None.
    """

    name: str
    columns: tuple[str, ...]
    kept: frozenset[int] | None = None

    @property
    def wanted(self) -> set[str]:
        """The names of the columns that at least one query reads."""
        return {self.columns[place] for place in self.kept or ()}
