"""Plans IN and EXISTS as joins that filter rows, or as joins that add a match flag as a column.

    EXISTS, IN      a semi join, or a mark join
    NOT EXISTS      an anti join
    NOT IN          if neither side can be NULL, an anti join. If the subquery reads the outer query or has several
                    columns, an anti join on `(x = y) IS NOT FALSE`, since a NULL on either side counts as a match.
                    Otherwise a "not in" join, which tracks whether the subquery is empty and whether it contains a NULL
    IN as a value   if neither side can be NULL, or NULL counts as FALSE, a mark join on `x = y`. Otherwise an "in" join
                    if possible; otherwise, if NULL counts as TRUE, a mark join on `(x = y) IS NOT FALSE`, or both mark
                    joins

Which results of an IN must be distinguished depends on where the IN appears. In a condition, NULL and FALSE need not be
distinguished. Under a NOT in a condition, NULL and TRUE need not be distinguished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from rowkind.service.physical.join_kinds import PhysicalJoinKind
from rowkind.service.plan.columns import by_name, columns, kept
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved, type_of
from rowkind.service.plan.sql.context import Selected

Asked = Literal["is true", "is not false", "exactly"]
"""Which results of a predicate must be distinguished: NULL counts as FALSE, NULL counts as TRUE, or all three results
are distinguished.
"""


class OneOf(exp.Expression, exp.Predicate):
    """An IN with a subquery, used as a value. `this` is the match flag's column; `expressions` are the operands."""

    arg_types = {"this": True, "expressions": True}  # noqa: RUF012 -- sqlglot's convention


def asked(node: exp.Expr, *, of_condition: bool) -> Asked:
    """Return which results of a predicate the expression that contains the predicate must distinguish.

    If `of_condition` is set, the whole expression is a condition, in which NULL counts as FALSE.
    """
    negated = False
    while node.parent is not None:
        is_test = isinstance(node.parent, exp.If | exp.Where) and node.arg_key == "this"
        node = node.parent
        if is_test:
            of_condition = True
            break
        if not isinstance(node, exp.And | exp.Or | exp.Not | exp.Paren):
            return "exactly"
        negated ^= isinstance(node, exp.Not)
    if not of_condition:
        return "exactly"
    return "is not false" if negated else "is true"


@dataclass(frozen=True)
class Membership:
    """The predicate `mine IN (inner)`. The operands `mine` read the rows of `left`; `path` is the subquery's path."""

    left: LogicalNode
    mine: Sequence[exp.Expr]
    inner: Selected
    path: str
    at: exp.Expr

    def true(self) -> LogicalNode:
        """Return the rows of `left` for which IN is true."""
        return self._joined("semi", self._matches)

    def false(self) -> LogicalNode:
        """Return the rows of `left` for which IN is false, and so NOT IN is true."""
        if self._is_two_valued:
            return self._joined("anti", self._matches)
        return self._counted("not in") if self._is_alone else self._joined("anti", self._may_match)

    def answered(self, answer: str, what: Asked) -> tuple[LogicalNode, exp.Expr]:
        """Return the rows of `left` with a match flag in the column `answer`, and the expression for IN's result."""
        found = resolved(answer, like=self.at)
        if what == "is true" or self._is_two_valued:
            return self._joined("mark", self._matches, answer), found
        if self._is_alone:
            return self._counted("in", answer), found
        if what == "is not false":
            return self._joined("mark", self._may_match, answer), found
        maybe = f"{self.path}maybe"
        both = replace(self, left=self._joined("mark", self._matches, answer))
        unknown = exp.If(this=resolved(maybe, like=self.at), true=exp.Null())
        true = exp.If(this=found, true=exp.Boolean(this=True))
        case = exp.Case(ifs=[true, unknown], default=exp.Boolean(this=False))
        return both._joined("mark", self._may_match, maybe), case  # noqa: SLF001 -- an instance of the same class

    @property
    def _pairs(self) -> list[tuple[exp.Expr, exp.Expr]]:
        return list(zip(self.mine, self.inner.outputs.values(), strict=True))

    @property
    def _equal(self) -> list[exp.Expr]:
        return [exp.EQ(this=own.copy(), expression=output.copy()) for own, output in self._pairs]

    @property
    def _matches(self) -> tuple[exp.Expr, ...]:
        return (*self._equal, *self.inner.links)

    @property
    def _may_match(self) -> tuple[exp.Expr, ...]:
        """The condition that the two sides may be equal. NULL may be equal to any value."""
        equal = exp.Paren(this=exp.and_(*self._equal, copy=False))
        false = exp.Paren(this=exp.Is(this=equal, expression=exp.Boolean(this=False)))
        return (*self.inner.links, exp.Not(this=false))

    @property
    def _is_two_valued(self) -> bool:
        """Whether neither side is ever NULL, so that IN is either TRUE or FALSE."""
        return all(_never_null(own, self.left) and _never_null(each, self.inner.input) for own, each in self._pairs)

    @property
    def _is_alone(self) -> bool:
        """Whether the result depends on nothing in the left row except a single operand."""
        return len(self.mine) == 1 and not self.inner.links

    def _joined(self, kind: PhysicalJoinKind, on: tuple[exp.Expr, ...], answer: str | None = None) -> LogicalJoin:
        sides = LogicalInput(self.left), LogicalInput(self.inner.input)
        return LogicalJoin(*sides, on, kind, self.at, answer=answer)

    def _counted(self, kind: PhysicalJoinKind, answer: str | None = None) -> LogicalJoin:
        """Return an "in" or "not in" join, which tracks whether the right side is empty and whether it contains a NULL.

        The operands become columns of their sides, so that the join's key reads only these columns.
        """
        ((own, output),) = self._pairs
        left, value = self.left, f"{self.path}value"
        if not reads(own):
            constant = f"{self.path}constant"
            left = LogicalProject(left, {each: resolved(each) for each in columns(left)} | {constant: own})
            own = resolved(constant, like=own)
        right = LogicalProject(self.inner.input, {value: output})
        key = exp.EQ(this=own, expression=resolved(value, like=output))
        return LogicalJoin(LogicalInput(left), LogicalInput(right), (key,), kind, self.at, answer=answer)


def _never_null(node: exp.Expr, below: LogicalNode) -> bool:
    """Return whether an expression over `below` is never NULL, either by its type or because a filter removes NULLs."""
    return not type_of(node, by_name(kept(LogicalInput(below)))).nullable
