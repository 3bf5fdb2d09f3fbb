"""Rewrites comparisons with ANY or ALL of a subquery's values.

    x = ANY (…), x = SOME (…)    x IN (…)
    x <> ALL (…)                 x NOT IN (…)
    x > ANY (…)                  x > the minimum of the values; < compares with the maximum, <> with both
    x > ALL (…)                  NOT x <= ANY (…)

ANY is the OR, and ALL the AND, of the comparisons with all values. So ANY is FALSE if the subquery has no rows.
Otherwise, ANY is TRUE if at least one comparison is TRUE. If no comparison is TRUE, ANY is NULL if x or one of the
values is NULL, and otherwise FALSE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.sql.scope import with_any

_NEGATED: Mapping[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}
_LEAST, _GREATEST = (exp.Min,), (exp.Max,)
_EXTREMES: Mapping[type[exp.Expr], tuple[type[exp.Min | exp.Max], ...]] = {
    exp.GT: _LEAST,
    exp.GTE: _LEAST,
    exp.LT: _GREATEST,
    exp.LTE: _GREATEST,
    exp.NEQ: (*_LEAST, *_GREATEST),
}
_VALUE = "value"


def without_all(tree: exp.Expr) -> exp.Expr:
    """Rewrite a query so that it does not contain ALL, and ANY follows only <, <=, >, >= or <>; return the query.

    Raises Refusal.
    """
    for node in list(tree.find_all(*_NEGATED)):
        quantifier = node.expression.unnest()
        subquery = _subquery(quantifier)
        if subquery is None:
            continue
        of_all = not isinstance(quantifier, exp.Any)
        kind = _NEGATED[type(node)] if of_all else type(node)
        if kind is exp.EQ:
            found: exp.Expr = exp.In(this=node.this, query=subquery)
        elif isinstance(node.this.unnest(), exp.Tuple):
            raise Refusal("ANY and ALL compare a single value: for rows of several values, write EXISTS", node)
        else:
            found = kind(this=node.this, expression=exp.Any(this=subquery))
        node.replace(exp.Paren(this=exp.Not(this=found)) if of_all else found)
    return tree


def summary(node: exp.Binary, *, whole: bool) -> exp.Select:
    """Return a query for the minimum, the maximum or both of the subquery's values, depending on the comparison.

    If `whole` is set, the query also counts the rows, and the values that are not NULL. Raises Refusal.
    """
    value = exp.column(_VALUE)
    counts = [exp.Count(this=exp.Star()), exp.Count(this=value.copy())] if whole else []
    extremes = [kind(this=value.copy()) for kind in _EXTREMES[type(node)]]
    values: exp.Expr | None = with_any(node)
    while isinstance(values, exp.Subquery) and not any(each for name, each in values.args.items() if name != "this"):
        values = values.this
    if isinstance(values, exp.Select) and not values.is_star and len(values.selects) != 1:
        raise Refusal("a subquery after ANY or ALL must have exactly one column", node)
    alias = exp.TableAlias(this=exp.to_identifier("any"), columns=[exp.to_identifier(_VALUE)])
    derived = exp.Subquery(this=values, alias=alias)
    return exp.Select(expressions=[*counts, *extremes], from_=exp.From(this=derived))


def answer(node: exp.Binary, operand: exp.Expr, found: Sequence[exp.Expr], *, whole: bool) -> exp.Expr:
    """Return the result of a comparison with ANY as an expression over the result columns of its `summary`.

    If `whole` is not set, the result may be NULL instead of FALSE.
    """
    extremes = found[2:] if whole else found
    true = exp.or_(*(type(node)(this=operand.copy(), expression=each.copy()) for each in extremes), copy=False)
    if not whole:
        return exp.Paren(this=true)
    number, known = found[:2]
    no_values = exp.EQ(this=number.copy(), expression=exp.Literal.number(0))
    some_null = exp.LT(this=known.copy(), expression=number.copy())
    unknown = exp.or_(some_null, exp.Is(this=operand.copy(), expression=exp.Null()), copy=False)
    cases = (no_values, exp.Boolean(this=False)), (true, exp.Boolean(this=True)), (unknown, exp.Null())
    return exp.Case(ifs=[exp.If(this=each, true=then) for each, then in cases], default=exp.Boolean(this=False))


def _subquery(quantifier: exp.Expr) -> exp.Subquery | None:
    """Return the subquery after ANY or ALL, or None if there is none."""
    if isinstance(quantifier, exp.Anonymous) and word(quantifier) == "ALL" and len(quantifier.expressions) == 1:
        # sqlglot parses `ALL ((SELECT …))` as a function call.
        inner = quantifier.expressions[0]
    elif isinstance(quantifier, exp.Any | exp.All):
        inner = quantifier.this
    else:
        return None
    if not isinstance(inner, exp.Query):
        return None
    return inner if isinstance(inner, exp.Subquery) else exp.Subquery(this=inner)
