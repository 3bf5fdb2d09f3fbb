"""A view of the job, as part of a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view of the job where a query uses it, and all of its columns by the names that they have there.

    `kept` is set if the view is used several times and is therefore planned on its own: the places of the columns that
    any query reads. It is None if the view is planned as a part of this query.
    """

    name: str
    columns: tuple[str, ...]
    kept: frozenset[int] | None = None

    @property
    def wanted(self) -> set[str]:
        """The columns that any query reads."""
        return {self.columns[place] for place in self.kept or ()}
