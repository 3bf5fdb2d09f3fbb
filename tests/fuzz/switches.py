"""Classes of cases that the fuzz makes, and the one that it makes only where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Switches:
    """Each is a class of queries or changes that random cases may hold."""

    guards: bool = True
    """Expressions that fail on rows that FILTER, CASE, AND or OR keep away from them."""

    ranks_in_subqueries: bool = True
    """A rank with a bound in a subquery of WHERE."""

    two_ranks: bool = True
    """Two window functions in one SELECT."""

    star_except: bool = True
    """`* EXCEPT (t.x)` of a join."""

    decimal_comparisons: bool = True
    """Decimals compared with decimals of another scale."""

    names_after_using: bool = True
    """Bare names of USING columns under further joins."""

    strays: bool = True
    """Retractions of rows that are not there, of tables without a key."""

    late_retractions: bool = False
    """A -U after its +U, of tables with a key. It takes away the row of its key, whatever the row says; but not where a
    filter drops the -U: then the new row stays. README says so; SQL over folded inputs cannot."""

    exact: bool = True
    """Tables that are said to be exact."""

    refresh: bool = True
    """TTL over tables whose rows are written more than once, and deletes of rows that have expired."""

    @property
    def share_of_exact(self) -> float:
        """How many of the tables that could be are said to be exact."""
        return 0.3 if self.exact else 0.0

    @classmethod
    def of(cls, words: str) -> Switches:
        """The switches that are named, with commas between them; `all` is every one. Raises KeyError."""
        known = {each.name: True for each in fields(cls)}
        named = [each for each in words.split(",") if each]
        return cls(**known) if "all" in named else cls(**{name: known[name] for name in named})
