"""Several ranks over the same rows by different orders: each is kept by itself, and the result has what is in all.

    ROW_NUMBER() OVER (ORDER BY a) AS n, RANK() OVER (ORDER BY b) AS m … WHERE n <= 2 AND m <= 3
                                            rank by a JOIN rank by b, on what identifies a row

That is the rows' unique key, or else all their columns. Equal rows have the same RANK, so that of such a rank each is
taken once. By ROW_NUMBER they have different numbers, in the order of their arrival in every rank: where there are
several, equal rows are counted in each, and the first one here is the first one there.
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
    """The windows on top of each other that number the same rows, each right over them, and these rows.

    Conditions between two windows remove whole partitions of the upper one, and are not asked below the lower one. One
    that reads a number makes other rows.
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
    """The rows that are in all ranks, with all numbers. Raises Refusal for rows that cannot be told from each other."""
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
    """The rank's rows, with the place of each among equal ones, which have to be known from the first on."""
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
                f"these rows have no unique key and a column that cannot be compared, {name.rpartition('.')[2]} "
                f"{types[name].sql}, so that several window functions over them cannot be brought together: declare a "
                f"primary_key, or leave the column out in a derived table",
                at,
            )
    if len({rank.ranking.ties for rank in numbered}) > 1:
        raise Refusal(
            "these rows have no unique key, and of equal ones one window function takes the first and another one the "
            "last: declare a primary_key",
            at,
        )


def _number(rank: LogicalRank, function: RankFunction) -> str:
    """The column with the number by a function of the rank."""
    return next(name for name, each in rank.numbers.items() if each == function)


def _copy(rank: LogicalRank) -> str:
    return f"{_number(rank, 'row_number')}_copy"


def _beside(name: str, rank: LogicalRank) -> str:
    """A column of the rows where it stands beside itself, under the same path."""
    path, _, column = name.rpartition(".")
    return ".".join(part for part in (path, next(iter(rank.numbers)).rpartition(".")[2], column) if part)
