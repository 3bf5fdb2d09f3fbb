"""Join several ranks over the same rows in different orders. The result contains the rows that are in all ranks.

    ROW_NUMBER() OVER (ORDER BY a) AS n, RANK() OVER (ORDER BY b) AS m … WHERE n <= 2 AND m <= 3
                                            rank by a JOIN rank by b, on the columns that identify a row

A row is identified by its unique key or, if there is none, by all its columns. Equal rows have the same RANK, so a rank
without ROW_NUMBER contributes each distinct row once. ROW_NUMBER gives equal rows different numbers, in the order of
their arrival. If several ranks have a ROW_NUMBER, equal rows are numbered in each rank, so that the first of the equal
rows in one rank is joined with the first in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from rowkind.operators.rank.ranking import RankFunction, Ranking
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalWindow, filtered
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys


def over_same_rows(node: LogicalNode) -> tuple[list[LogicalWindow], LogicalNode]:
    """Return the rows, and the consecutive windows that number them. Each window is placed directly over the rows.

    A condition between two windows removes whole partitions of the upper window, and does not apply to the rows of the
    lower window. A condition that reads a number changes the rows, so the windows above and below it do not number the
    same rows.
    """
    between = isinstance(node, LogicalFilter) and isinstance(node.input, LogicalFilter | LogicalWindow)
    if not isinstance(node, LogicalWindow | LogicalFilter) or not (between or isinstance(node, LogicalWindow)):
        return [], node
    windows, rows = over_same_rows(node.input)
    numbers = {each.number for each in windows}
    if isinstance(node, LogicalFilter):
        asked = numbers & set[str]().union(*map(reads, node.conjuncts))
        return ([], node) if asked else (windows, replace(node, input=rows))
    if numbers & {*node.partition, *(each.column for each in node.order)}:
        return [replace(node, input=node.input)], node.input
    return [*windows, replace(node, input=rows)], rows


def join_ranks(ranks: Sequence[LogicalRank]) -> LogicalNode:
    """Return the rows that are in all ranks, with all numbers. Raises Refusal for rows that cannot be distinguished."""
    rows = ranks[0].input.input
    keys = in_order(unique_keys(rows), rows)
    identity = keys[0] if keys else tuple(columns(rows))
    numbered = [] if keys else [rank for rank in ranks if "row_number" in rank.numbers.values()]
    main = numbered[0] if numbered else ranks[0]
    if not keys:
        _check(ranks, numbered, identity)
    copies = len(numbered) > 1
    joined: LogicalNode = _with_copies(main, identity) if copies else main
    for rank in ranks:
        if rank is main:
            continue
        names = {name: _beside(name, rank) for name in identity}
        outputs: dict[str, exp.Expr] = {names[name]: resolved(name) for name in identity}
        outputs |= {name: resolved(name) for name in rank.numbers}
        pairs = [exp.NullSafeEQ(this=resolved(name), expression=resolved(names[name])) for name in identity]
        side: LogicalNode = rank
        if copies and rank in numbered:
            side = _with_copies(rank, identity)
            outputs[_copy(rank)] = resolved(_copy(rank))
            pairs.append(exp.NullSafeEQ(this=resolved(_copy(main)), expression=resolved(_copy(rank))))
        side = LogicalProject(side, outputs)
        if not keys and rank not in numbered:
            side = LogicalAggregate(LogicalInput(side), tuple(outputs), {}, is_global=False, at=rank.at)
        joined = LogicalJoin(LogicalInput(joined), LogicalInput(side), tuple(pairs), "inner", rank.at)
    return joined


def _with_copies(rank: LogicalRank, identity: tuple[str, ...]) -> LogicalNode:
    """Return the rank's rows, each numbered among equal rows. The rank starts at 1, so that all rows are counted."""
    whole = replace(rank, ranking=replace(rank.ranking, first=1), condition=(), asked={})
    counted = LogicalRank(
        LogicalInput(whole),
        Ranking("row_number", 1, rank.ranking.last if rank.ranking.function == "row_number" else None),
        identity,
        (OrderColumn(_number(rank, "row_number")),),
        {_copy(rank): "row_number"},
        rank.at,
    )
    conditions = rank.condition
    if rank.ranking.first > 1:
        own = resolved(_number(rank, rank.ranking.function))
        conditions = (exp.GTE(this=own, expression=exp.Literal.number(rank.ranking.first)), *conditions)
    return filtered(counted, conditions)


def _check(ranks: Sequence[LogicalRank], numbered: Sequence[LogicalRank], identity: tuple[str, ...]) -> None:
    types = columns(ranks[0].input.input)
    at = ranks[-1].at
    for name in identity:
        if not types[name].orderable:
            raise Refusal(
                f"these rows have no unique key, and their column {name.rpartition('.')[2]} of type "
                f"{types[name].sql} cannot be compared, so several window functions over them cannot be combined: "
                f"declare a primary_key, or omit the column in a derived table",
                at,
            )
    if len({rank.ranking.ties for rank in numbered}) > 1:
        raise Refusal(
            "these rows have no unique key, and of equal rows one window function ranks the first to arrive first, "
            "and another one the last: declare a primary_key",
            at,
        )


def _number(rank: LogicalRank, function: RankFunction) -> str:
    """Return the name of the column with the number that a function of the rank computes."""
    return next(name for name, each in rank.numbers.items() if each == function)


def _copy(rank: LogicalRank) -> str:
    return f"{_number(rank, 'row_number')}_copy"


def _beside(name: str, rank: LogicalRank) -> str:
    """Return a second name, under the same path, for a column that is on both sides of the join."""
    path, _, column = name.rpartition(".")
    return ".".join(part for part in (path, next(iter(rank.numbers)).rpartition(".")[2], column) if part)
