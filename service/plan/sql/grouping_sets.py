"""GROUPING SETS, ROLLUP and CUBE: determines each set's columns, and an id that distinguishes the sets.

    GROUP BY a, ROLLUP(b, c)                  (a, b, c), (a, b), (a)
    GROUP BY CUBE(a, b)                       (a, b), (a), (b), ()
    GROUP BY GROUPING SETS ((a, b), ROLLUP(c))    (a, b), (c), ()
    GROUP BY a, b WITH ROLLUP                 same as ROLLUP(a, b)

Each row is repeated once for each set, with the set's grouping id. The id has one bit for each group column, and the
first column has the highest of these bits. A bit is 1 if the set omits the column. Higher bits number equal sets. In
the repeated rows, the columns that the set omits are NULL. The rows are then grouped by all group columns and the id.
As in Spark, the set () has a result row only if there are input rows. The exception is GROUPING SETS (()) alone, which
is equivalent to no GROUP BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from sqlglot import exp

from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.calc import LogicalExpand, LogicalProject
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.values import Constants

_MOST_SETS = 4096
_MOST_COLUMNS = 48

GroupingSet = tuple[exp.Expr, ...]
"""The expressions in one grouping set, as the user wrote them."""


@dataclass(frozen=True)
class GroupingSets:
    """The grouping sets of a GROUP BY in the order as written. `names` are all group columns.

    `id` is the name of the column that holds the grouping id.
    """

    sets: tuple[frozenset[str], ...]
    names: tuple[str, ...]
    id: str

    @property
    def ids(self) -> tuple[int, ...]:
        """The value of `id` in each set's rows."""
        seen: dict[int, int] = {}
        found = []
        for each in self.sets:
            bits = sum(self._bit(name) for name in self.names if name not in each)
            found.append(bits + (seen.get(bits, 0) << len(self.names)))
            seen[bits] = seen.get(bits, 0) + 1
        return tuple(found)

    def expanded(self, rows: LogicalNode, sources: Mapping[str, exp.Expr]) -> LogicalNode:
        """Return the rows, repeated once for each set. Columns that a set omits are NULL in that set's rows.

        `sources` maps each column of the result to its expression over `rows`.
        """
        path, _, name = self.id.rpartition(".")
        place = f"{path}.#{name}" if path else f"#{name}"
        ids = Constants(expressions=[exp.Literal.number(each) for each in self.ids])
        below = {own: f"{own}#" if own in self.names else own for own in sources}
        project = LogicalProject(rows, {below[own]: source for own, source in sources.items()})
        shown = [exp.Tuple(expressions=[resolved(own) for own in self.names if own in each]) for each in self.sets]
        finest = next((number for number, each in enumerate(self.sets) if each >= {*self.names}), None)
        at = exp.GroupingSets(expressions=shown)
        expand = LogicalExpand(project, ids, {self.id: 0}, place, at, finest=finest)
        outputs = {own: self._within(own, below[own]) for own in sources}
        return LogicalProject(expand, {**outputs, self.id: resolved(self.id)})

    def grouping(self, names: Sequence[str]) -> exp.Expr:
        """Return the grouping id over some of the group columns. The first column has the highest bit."""
        if list(names) == list(self.names) and len(set(self.sets)) == len(self.sets):
            return resolved(self.id)
        values: dict[int, list[int]] = {}
        for id_, each in zip(self.ids, self.sets, strict=True):
            bits = sum(1 << len(names) - 1 - place for place, name in enumerate(names) if name not in each)
            values.setdefault(bits, []).append(id_)
        ifs = [
            exp.If(this=self._is_one_of(ids), true=_bigint(bits)) for bits, ids in sorted(values.items()) if bits > 0
        ]
        return exp.Case(ifs=ifs, default=_bigint(0)) if ifs else _bigint(0)

    def _within(self, name: str, below: str) -> exp.Expr:
        """Return the expression for a column. It is NULL in the rows of sets that omit the column."""
        if name not in self.names:
            return resolved(below)
        ids = [id_ for id_, each in zip(self.ids, self.sets, strict=True) if name in each]
        if len(ids) == len(self.ids):
            return resolved(below)
        return exp.Case(ifs=[exp.If(this=self._is_one_of(ids), true=resolved(below))])

    def _is_one_of(self, ids: Sequence[int]) -> exp.Expr:
        return exp.In(this=resolved(self.id), expressions=[exp.Literal.number(each) for each in ids])

    def _bit(self, name: str) -> int:
        return 1 << len(self.names) - 1 - self.names.index(name)


def grouping_sets(group: exp.Group) -> tuple[GroupingSet, ...] | None:
    """Return a GROUP BY's grouping sets in the order as written, or None if it has only expressions. Raises Refusal."""
    if group.args.get("totals"):
        raise Refusal("WITH TOTALS is not supported: write GROUP BY ROLLUP(…)", group)
    columns = [_members(each) for each in group.expressions]
    if group.args.get("rollup"):
        return _checked(_rollup(columns), group)
    if group.args.get("cube"):
        return _checked(_cube(columns, group), group)
    if (written := group.args.get("grouping_sets")) is not None:
        # Columns before GROUPING SETS determine only the order of the bits in the id.
        return _checked([each for sets in written for each in _sets(sets)], group)
    if not any(isinstance(each, _SETS) or _is_empty(each) for each in group.expressions):
        return None
    factors = list(map(_sets, group.expressions))
    if prod(map(len, factors)) > _MOST_SETS:
        raise Refusal(
            f"there are {prod(map(len, factors))} grouping sets, but at most {_MOST_SETS} are supported", group
        )
    return _checked([sum(parts, ()) for parts in product(*factors)], group)


def written_columns(group: exp.Group) -> Iterator[exp.Expr]:
    """Yield the expressions in the grouping sets in the order as written, including repeated expressions."""
    for each in (*group.expressions, *(group.args.get("grouping_sets") or [])):
        yield from _written(each)


_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def _written(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, (*_SETS, exp.Tuple)):
        for each in node.expressions:
            yield from _written(each)
    else:
        yield node.unnest()


def _sets(node: exp.Expr) -> list[GroupingSet]:
    match node:
        case exp.Rollup():
            return _rollup([_members(each) for each in node.expressions])
        case exp.Cube():
            return _cube([_members(each) for each in node.expressions], node)
        case exp.GroupingSets():
            return [each for part in node.expressions for each in _sets(part)]
    return [_members(node)]


def _rollup(parts: Sequence[GroupingSet]) -> list[GroupingSet]:
    return [sum(parts[:count], ()) for count in range(len(parts), -1, -1)]


def _cube(parts: Sequence[GroupingSet], at: exp.Expr) -> list[GroupingSet]:
    if 1 << len(parts) > _MOST_SETS:
        raise Refusal(
            f"CUBE of {len(parts)} columns has {1 << len(parts)} grouping sets: list only those you need with "
            "GROUPING SETS",
            at,
        )
    return [
        sum((part for part, taken in zip(parts, choice, strict=True) if taken), ())
        for choice in product((True, False), repeat=len(parts))
    ]


def _members(node: exp.Expr) -> GroupingSet:
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _is_empty(node: exp.Expr) -> bool:
    return isinstance(node, exp.Tuple) and not node.expressions


def _checked(sets: list[GroupingSet], group: exp.Group) -> tuple[GroupingSet, ...]:
    if len(sets) > _MOST_SETS:
        raise Refusal(f"there are {len(sets)} grouping sets, but at most {_MOST_SETS} are supported", group)
    if sum(1 for _ in written_columns(group)) > _MOST_COLUMNS:
        raise Refusal(f"grouping sets can have at most {_MOST_COLUMNS} columns", group)
    return tuple(sets)


def _bigint(number: int) -> exp.Expr:
    return exp.cast(exp.Literal.number(number), "BIGINT")
