"""Turn a ranking function such as ROW_NUMBER, and the conditions on its number, into a single operator: a rank.

    ROW_NUMBER() OVER (PARTITION BY k ORDER BY t) AS n … WHERE n <= 3     rank from 1 to 3 by t
    … WHERE n BETWEEN 3 AND 5, n = 2, n > 1 AND n < 4                     rank in that range
    … WHERE n IN (1, 3), n <= 9 AND n <> 2                                rank from 1 to 3, or to 9, with a condition
    … WHERE n <> 1, or CASE WHEN n = 1 THEN … in the SELECT list          rank of all rows; numbers above 1 are alike
    … WHERE n <= c                                                        rank of all rows, with a condition on the row
    ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) = 1                deduplication: the last row, if t is a time
    … ORDER BY PROCTIME() DESC                                            deduplication: the last row by arrival
    several functions over the same rows in the same order                one rank with several numbers
    several functions over the same rows in different orders              a join of ranks (join_ranks)

If the query reads the number without an upper bound, each change may renumber a whole partition. The window then
becomes an Over, which renumbers the rows after a change. It still becomes a rank if partitions have few rows, because
of a unique key or another rank, or if the hint UNBOUNDED_RANK allows the rank to read all rows. Several unbounded
numbers in different orders require the hint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.operators.over.framing import Frame
from rowkind.operators.rank.ranking import Ranking, Ties
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.calls import LogicalWindowCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
    filtered,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalBinary, LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.logical.subset import LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.passes.join_ranks import join_ranks, over_same_rows
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.fixed_columns import fixed_columns
from rowkind.service.plan.traits.partition_sizes import has_few_rows
from rowkind.service.plan.traits.row_number_bounds import EVERY, Ranges, admitted, intersection, row_bound, told_apart
from rowkind.service.plan.traits.unique_keys import unique_keys
from rowkind.service.plan.tree import walk, with_inputs

_ADVICE = (
    "add an upper bound, as in WHERE n <= 10, n BETWEEN 3 AND 5 or n <= column, or, if partitions are small, write "
    "/*+ UNBOUNDED_RANK */ after SELECT"
)

Uses = Mapping[str, float]
"""How each column that is read is used; unread columns are absent. For a row number, the value is the largest number
that is distinguished from larger numbers, or infinity if all numbers are distinguished."""


def rewrite_ranks(query: Query) -> Query:
    """Turn each ranking window and the conditions on its number into a rank.

    Raises Refusal for a window that has no upper bound and cannot become an Over.

    >>> example(rewrite_ranks, '''
    ...     SELECT item, bidder FROM bids
    ...     QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) <= 3''')
    Filter row_number <= 3
      Window row_number number=row_number partition=[bids.item] order=[bids.price DESC]
        Scan bids
    becomes
    Rank row_number 1..3 partition=[bids.item] order=[bids.price DESC] numbers=[…]
      Scan bids
    """
    expires = query.job.ttl is not None or bool(query.ttl_hints) or any(map(_expires, walk(query.root)))
    root = _Rewriting(may_expire=expires).visit(query.root, dict.fromkeys(query.outputs, math.inf))
    return replace(query, root=root)


def _expires(node: LogicalNode) -> bool:
    return isinstance(node, LogicalScan) and node.source.ttl_ms is not None


@dataclass(frozen=True)
class _Rewriting:
    """A rewrite of one query's windows.

    `may_expire` is true if some rows of the query have a TTL. A rank with a TTL can store only one number per row.
    """

    may_expire: bool

    def visit(self, node: LogicalNode, uses: Uses) -> LogicalNode:
        """Return the node with its windows rewritten, given how its columns are read."""
        if isinstance(node, LogicalFilter) and isinstance(node.input, LogicalWindow):
            return self._ranks(node.input, node.conjuncts, uses)
        if isinstance(node, LogicalWindow):
            return self._ranks(node, (), uses)
        below = _uses_below(node, uses)
        return with_inputs(node, lambda each: self.visit(each, below))

    def _ranks(self, top: LogicalWindow, conditions: tuple[exp.Expr, ...], uses: Uses) -> LogicalNode:
        windows, rows = over_same_rows(top)
        asked = set[str]().union(*map(reads, conditions))
        unread = [each for each in windows if not uses.get(each.number) and each.number not in asked]
        alike = all(each.input is rows for each in windows)
        if unread and alike:
            return self._without(unread, windows, rows, conditions, uses)
        numbered = [each for each in windows if _goes_into_over(each, conditions)]
        if numbered and alike:
            top_: LogicalNode = _with_numbers(rows, numbered)
            for each in windows:
                top_ = top_ if each in numbered else replace(each, input=top_)
            return self.visit(filtered(top_, conditions), uses)
        groups: list[list[LogicalWindow]] = []
        for window in windows:
            found = next((group for group in groups if self._goes_with(window, group, uses)), None)
            if found is None:
                groups.append([window])
            else:
                found.append(window)
        if len(groups) == 1:
            return filtered(*self._rank(groups[0], conditions, uses, alone=True))
        return self._joined(groups, conditions, uses)

    def _without(
        self,
        unread: Sequence[LogicalWindow],
        windows: Sequence[LogicalWindow],
        rows: LogicalNode,
        conditions: tuple[exp.Expr, ...],
        uses: Uses,
    ) -> LogicalNode:
        """Return windows over the same rows without the `unread` ones, whose numbers are replaced by a constant."""
        top = rows
        for each in windows:
            top = top if each in unread else replace(each, input=top)
        below = self.visit(filtered(top, conditions), uses)
        outputs: dict[str, exp.Expr] = {name: resolved(name) for name in columns(below)}
        outputs |= {each.number: exp.Literal.number(1) for each in unread}
        return LogicalProject(below, outputs)

    def _joined(
        self, groups: Sequence[Sequence[LogicalWindow]], conditions: tuple[exp.Expr, ...], uses: Uses
    ) -> LogicalNode:
        """Return a join of ranks, one per group of windows. Each rank applies the conditions on its own numbers."""
        rows, rest, of_group = groups[0][0].input, [*conditions], []
        for group in groups:
            known = columns(rows).keys() | {each.number for each in group}
            # A condition that may fail stays above the join, where another condition may guard it.
            numbers = {each.number for each in group}
            own = [each for each in rest if reads(each) & numbers and reads(each) <= known and not may_fail(each)]
            rest = [each for each in rest if each not in own]
            of_group.append(tuple(own))
        # The join reads all columns. If rows have no key, it matches equal rows by their ROW_NUMBER.
        read = _with_uses({**uses, **dict.fromkeys(columns(rows), math.inf)}, rest)
        if not unique_keys(rows):
            windows = [each for group in groups for each in group]
            read |= {each.number: math.inf for each in windows if each.function == "row_number"}
        ranks, above = zip(*(self._rank(*each, read) for each in zip(groups, of_group, strict=True)), strict=True)
        assert all(isinstance(each, LogicalRank) for each in ranks), "several groups are all ranks"
        return filtered(
            join_ranks([each for each in ranks if isinstance(each, LogicalRank)]),
            (*rest, *(each for conditions in above for each in conditions)),
        )

    def _goes_with(self, window: LogicalWindow, group: Sequence[LogicalWindow], uses: Uses) -> bool:
        """Whether one rank can compute this window's number together with those of the group."""
        first = group[0]
        same = (window.input, window.partition, window.order) == (first.input, first.partition, first.order)
        read = [each for each in (*group, window) if uses.get(each.number)]
        return same and not (self.may_expire and len(read) > 1)

    def _rank(
        self, windows: Sequence[LogicalWindow], conditions: tuple[exp.Expr, ...], uses: Uses, *, alone: bool = False
    ) -> tuple[LogicalRank | LogicalOver, tuple[exp.Expr, ...]]:
        """Combine windows with the same order into one rank, and return it with the conditions that stay above it.

        They become an Over instead if all numbers are read, and if no other windows are over these rows (`alone`).
        """
        ranges = {each.number: _ranges(each, conditions) for each in windows}
        main = min(windows, key=lambda each: ranges[each.number][-1][1])
        (first, _), (_, last) = ranges[main.number][0], ranges[main.number][-1]
        rest = tuple(each for each in conditions if len(admitted(each, main.number) or ()) != 1)
        about = set(ranges)
        # The rank need not emit a number that only conditions read. Conditions guard each other in the order in which
        # they are written, so they stay together.
        by_row = [found for each in rest if last == math.inf and (found := row_bound(each, about)) is not None]
        inside = bool(by_row) or any(not uses.get(name) for each in rest for name in reads(each) & about)
        condition, above = (rest, ()) if inside else ((), rest)
        order, read = _order(windows), _with_uses(uses, rest)
        below = self.visit(main.input, _of_window(main, read))
        most = max([first - 1, *(read.get(name, 0) for name in about)])
        if last == most == math.inf and not by_row and not any(each.unbounded for each in windows):
            arrives_last = not (order and order[-1].column is None and order[-1].descending)
            if alone and arrives_last and not has_few_rows(below, set(main.partition)):
                return _over(windows, order, below), conditions
            _check_size(main, below, [each for each in conditions if reads(each) & about])
        read_here = set[str]().union(*map(reads, condition))
        rank = LogicalRank(
            LogicalInput(below),
            _ranking(main, ranges[main.number], order, below, int(most) if most < last == math.inf else None),
            main.partition,
            order,
            {each.number: each.function for each in windows},
            main.at,
            condition=condition,
            asked={each.number: each.function for each in windows if each.number in read_here},
            bound=_same_in_partition(by_row, main, below),
        )
        return rank, above


def _ranking(
    window: LogicalWindow, ranges: Ranges, order: Sequence[OrderColumn], below: LogicalNode, settled: int | None
) -> Ranking:
    """Return the ranking that covers all numbers that are read, from the first to the last."""
    (first, _), (_, last) = ranges[0], ranges[-1]
    ranking = Ranking(window.function, first, None if last == math.inf else int(last), settled=settled)
    return replace(ranking, ties=_ties(ranking, order, below)) if _over_of(window) is None else ranking


def _over_of(window: LogicalWindow) -> LogicalOver | None:
    """Return the Over with the same window in the same SELECT, if any. This Over determines the order of equal rows."""
    node, order = window.input, _order([window])
    while isinstance(node, LogicalOver):
        if (node.partition, node.order) == (window.partition, order):
            return node
        node = node.input.input
    return None


def _goes_into_over(window: LogicalWindow, conditions: tuple[exp.Expr, ...]) -> bool:
    """Whether the Over below with the same window computes the number, instead of a rank above the Over.

    A rank above the Over orders rows in the same way, unless several rows have the same arrival number. The results of
    the Over distinguish such rows, but do not show their order. Without an upper bound, all rows are numbered anyway.
    """
    if (over := _over_of(window)) is None:
        return False
    return _ranges(window, conditions)[-1][1] == math.inf or not _arrive_one_by_one(over.input.input)


def _arrive_one_by_one(node: LogicalNode) -> bool:
    """Whether no two rows have the same arrival number, because they are rows of a table and each appears once."""
    while isinstance(node, LogicalProject | LogicalFilter):
        node = node.input
    if isinstance(node, LogicalOver | LogicalTemporalFilter):
        return _arrive_one_by_one(node.input.input)
    return isinstance(node, LogicalScan)


def _with_numbers(node: LogicalNode, windows: Sequence[LogicalWindow]) -> LogicalNode:
    """Return the node with the windows' numbers, each computed by the Over that has the same window."""
    assert isinstance(node, LogicalOver), "every window has an Over"
    own = [each for each in windows if (node.partition, node.order) == (each.partition, _order([each]))]
    rest = [each for each in windows if each not in own]
    below = replace(node.input, input=_with_numbers(node.input.input, rest)) if rest else node.input
    return replace(node, input=below, calls={**node.calls, **_numbers(own)})


def _numbers(windows: Sequence[LogicalWindow]) -> dict[str, LogicalWindowCall]:
    """Return the calls that compute the windows' numbers from the first row of the partition to the current row."""
    frame = Frame("rows", None, 0)
    return {each.number: LogicalWindowCall(each.function, (), types.INT, frame, at=each.at) for each in windows}


def _over(windows: Sequence[LogicalWindow], order: tuple[OrderColumn, ...], below: LogicalNode) -> LogicalOver:
    """Return an Over that computes the windows' numbers for all rows."""
    first = windows[0]
    return LogicalOver(LogicalInput(below), first.partition, order, _numbers(windows), first.at)


def _ranges(window: LogicalWindow, conditions: Iterable[exp.Expr]) -> Ranges:
    """Return the numbers that satisfy all conditions that read only the window's number.

    Raises Refusal if no row can have such a number.
    """
    ranges = EVERY
    for each in conditions:
        own = admitted(each, window.number) if reads(each) == {window.number} else None
        if own == ():
            raise Refusal("no row has this number: numbers begin at 1", each)
        ranges = ranges if own is None else intersection(ranges, own)
    if not ranges:
        raise Refusal("no row number satisfies all of these conditions", window.at)
    return ranges


def _same_in_partition(bounds: Iterable[exp.Expr], window: LogicalWindow, rows: LogicalNode) -> str | None:
    """Return the first bound that is an integer column with the same value in all rows that are ever in a partition."""
    fixed, types_ = fixed_columns(rows, set(window.partition)), columns(rows)
    for each in bounds:
        bare = each.unnest()
        if isinstance(bare, exp.Column) and bare.name in fixed and types.family(types_[bare.name]) == "integer":
            return bare.name
    return None


def _check_size(window: LogicalWindow, rows: LogicalNode, about: Sequence[exp.Expr]) -> None:
    """Raise Refusal unless partitions are known to be small, for a window whose numbers are all read."""
    if has_few_rows(rows, set(window.partition)):
        return
    odd = [each for each in about if admitted(each, window.number) is None]
    if odd:
        raise Refusal(f"this condition does not limit the rank number: {_ADVICE}", odd[0])
    raise Refusal(f"{window.function.upper()} renumbers every row of a partition on each change: {_ADVICE}", window.at)


def _order(windows: Sequence[LogicalWindow]) -> tuple[OrderColumn, ...]:
    """Return the windows' order up to PROCTIME(), which leaves no ties. Raises Refusal for a RANK over PROCTIME()."""
    order = windows[0].order
    arrival = [number for number, each in enumerate(order) if each.column is None]
    for each in windows:
        if arrival and each.function != "row_number":
            name = each.function.upper()
            raise Refusal(
                f"{name} over PROCTIME() equals ROW_NUMBER, because no two rows arrive at the same time: "
                "write ROW_NUMBER",
                each.at,
            )
    return order[: arrival[0] + 1] if arrival else order


def _ties(ranking: Ranking, order: Sequence[OrderColumn], below: LogicalNode) -> Ties:
    """Return whether the earliest or the latest arrival ranks first among tied rows."""
    final = order[-1] if order else None
    if final is None or not final.descending:
        return "earliest first"
    if final.column is None:
        return "latest first"
    keeps_one = ranking.takes_one and len(order) == 1
    is_time = types.family(columns(below)[final.column]) in ("date", "timestamp", "local")
    return "latest first" if keeps_one and is_time else "earliest first"


def _with_uses(uses: Uses, expressions: Iterable[exp.Expr]) -> dict[str, float]:
    """Return `uses` with the expressions' uses of columns added."""
    found = dict(uses)
    for each in expressions:
        for name in reads(each):
            found[name] = max(found.get(name, 0), told_apart(each, name))
    return found


def _of_window(window: LogicalWindow, uses: Uses) -> Uses:
    own = {*window.partition, *(each.column for each in window.order if each.column is not None)}
    return {**uses, **dict.fromkeys(own, math.inf)}


def _uses_below(node: LogicalNode, uses: Uses) -> Uses:
    """Return how the columns of a node's inputs are read, given how the node's own columns are read."""
    match node:
        case LogicalFilter():
            return _with_uses(uses, node.conjuncts)
        case LogicalProject():
            return _of_project(node, uses)
        case LogicalUnion():
            return uses
        case LogicalBinary():
            times = (node.match.left, node.match.right) if isinstance(node, LogicalLookup) and node.match else ()
            return {**uses, **dict.fromkeys({*times}.union(*map(reads, node.condition)), math.inf)}
        case LogicalOver():
            ordered = {each.column for each in node.order if each.column is not None}
            return {**uses, **dict.fromkeys(node.reads.union(node.partition, ordered), math.inf)}
        case LogicalAggregate():
            return dict.fromkeys(node.reads, math.inf)
        case LogicalTemporalFilter():
            return dict.fromkeys({*uses, *node.reads}, math.inf)
    return dict.fromkeys(uses, math.inf)


def _of_project(node: LogicalProject, uses: Uses) -> Uses:
    # A view that several queries read must be planned the same way in each of them.
    shared = node.view.wanted if node.view is not None and node.stands else set()
    wanted = dict.fromkeys(uses.keys() | shared, math.inf) if node.stands else uses
    found: dict[str, float] = {}
    for name, output in node.outputs.items():
        bare = output.unnest()
        if name not in wanted:
            continue
        if isinstance(bare, exp.Column):
            found[bare.name] = max(found.get(bare.name, 0), wanted[name])
        else:
            found = _with_uses(found, [output])
    return found
