"""Ranks: a window's number and the condition on it become one operator.

    ROW_NUMBER() OVER (PARTITION BY k ORDER BY t) AS n … WHERE n <= 3     rank from 1 to 3 by t
    … WHERE n BETWEEN 3 AND 5, n = 2, n > 1 AND n < 4                     rank in that range
    ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) = 1                deduplicate, where t is a time: the last row
    … ORDER BY PROCTIME() DESC                                            the same by arrival
    two of them over the same rows, each with its bounds                  a join of two ranks (join_ranks)

Without an upper bound each change could renumber the whole partition, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from rowkind.operators.ranking import Ranking, Ties
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalFilter,
    LogicalInput,
    LogicalNode,
    LogicalRank,
    LogicalWindow,
    OrderColumn,
    Query,
    reads,
    with_inputs,
)
from rowkind.service.plan.passes.join_ranks import join_ranks, over_same_rows
from rowkind.service.plan.scalar import types

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_ADVICE = "bound it from above by numbers, as in WHERE n <= 10, n = 1 or n BETWEEN 3 AND 5"


def rewrite_ranks(query: Query) -> Query:
    """Windows with the conditions right above them as ranks. Raises Refusal for a window without an upper bound."""
    return replace(query, root=_visit(query.root))


def _visit(node: LogicalNode) -> LogicalNode:
    match node:
        case LogicalFilter(input=LogicalWindow() as window):
            windows, _ = over_same_rows(window)
            ranks = [_bounded(each, node.conjuncts) for each in windows]
            numbers = {each.number for each in windows}
            rest = tuple(each for each in node.conjuncts if not _is_bound(each, numbers))
            top = ranks[0] if len(ranks) == 1 else join_ranks(ranks)
            return LogicalFilter(top, rest) if rest else top
        case LogicalWindow():
            return _rank(node, [])
    return with_inputs(node, _visit)


def _is_bound(condition: exp.Expr, numbers: set[str]) -> bool:
    return reads(condition) <= numbers and len(reads(condition)) == 1 and _bounds(condition) is not None


def _bounded(window: LogicalWindow, conditions: Iterable[exp.Expr]) -> LogicalRank:
    """The window as a rank, by the conditions above that read its number and nothing else."""
    about = [each for each in conditions if reads(each) == {window.number}]
    bounds = [found for each in about if (found := _bounds(each)) is not None]
    odd = [each for each in about if _bounds(each) is None]
    if odd and all(last is None for _, last in bounds):
        raise Refusal(f"this condition on the number of a row is not understood: {_ADVICE}", odd[0])
    return _rank(window, bounds)


def _rank(window: LogicalWindow, bounds: Iterable[tuple[int, int | None]]) -> LogicalRank:
    first, last = 1, None
    for low, high in bounds:
        first = max(first, low)
        last = high if last is None else last if high is None else min(last, high)
    name = window.function.upper()
    if last is None:
        raise Refusal(f"{name} numbers every row of a partition anew with each change: {_ADVICE}", window.at)
    if last < first:
        raise Refusal(f"no row has a number from {first} to {last}", window.at)
    arrival = [number for number, order in enumerate(window.order) if order.column is None]
    order = window.order[: arrival[0] + 1] if arrival else window.order
    if arrival and window.function != "row_number":
        raise Refusal(
            f"{name} over PROCTIME() is ROW_NUMBER, because no two rows arrive at once: write that", window.at
        )
    below = _visit(window.input)
    ranking = Ranking(window.function, first, last)
    ranking = replace(ranking, ties=_ties(ranking, order, below))
    return LogicalRank(LogicalInput(below), ranking, window.partition, order, window.number, window.at)


def _ties(ranking: Ranking, order: Sequence[OrderColumn], below: LogicalNode) -> Ties:
    """Which of equal rows ranks first: the earlier arrival, but whoever keeps the last row by time wants the later."""
    final = order[-1] if order else None
    if final is None or not final.descending:
        return "earliest first"
    if final.column is None:
        return "latest first"
    keeps_one = ranking.takes_one and len(order) == 1
    is_time = types.family(columns(below)[final.column]) in ("date", "timestamp", "local")
    return "latest first" if keeps_one and is_time else "earliest first"


def _bounds(condition: exp.Expr) -> tuple[int, int | None] | None:
    """The first and the last number that a condition admits, None for one that is no range of numbers."""
    node = condition.unnest()
    if isinstance(node, exp.Between):
        low, high = _integer(node.args["low"]), _integer(node.args["high"])
        if isinstance(node.this.unnest(), exp.Column) and low is not None and high is not None:
            return low, high
    if isinstance(node, exp.In) and isinstance(node.this.unnest(), exp.Column):
        numbers = sorted({number for each in node.expressions if (number := _integer(each)) is not None})
        if len(numbers) == len(node.expressions) and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return numbers[0], numbers[-1]
    if isinstance(node, exp.Binary) and type(node) in _FLIPPED:
        kind: type[exp.Expr] = type(node)
        column, number = node.left, _integer(node.right)
        if number is None:
            kind, column, number = _FLIPPED[kind], node.right, _integer(node.left)
        if number is not None and isinstance(column.unnest(), exp.Column):
            return _range(kind, number)
    return None


def _range(kind: type[exp.Expr], number: int) -> tuple[int, int | None]:
    if kind is exp.EQ:
        return number, number
    if kind in (exp.LT, exp.LTE):
        return 1, number if kind is exp.LTE else number - 1
    return (number if kind is exp.GTE else number + 1), None


def _integer(node: exp.Expr) -> int | None:
    node = node.unnest()
    if isinstance(node, exp.Neg):
        number = _integer(node.this)
        return None if number is None else -number
    return int(node.this) if isinstance(node, exp.Literal) and node.is_int else None
