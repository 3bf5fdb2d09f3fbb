"""Add arrival numbers to rows, so that results that use arrival order do not depend on batch boundaries.

    SELECT k, FIRST(id), LAST(id) FROM t GROUP BY k          over an upsert table

ROW_NUMBER, LIMIT, OVER, FIRST, LAST, `ORDER BY PROCTIME()`, the ORDER BY of a whole query, `on_conflict` and ASOF JOIN
use the arrival order of rows if nothing else determines their order. The rules:

- A row of a table arrives with the record that last wrote the row: each `+I` and each `+U` is a new arrival, even if no
  value that the query reads has changed. A `-U`/`+U` pair therefore moves its row to the end.
- A row of a join arrives with the later of the two rows that it joins. A row of a semi join, a rank, a lookup or a
  session arrives with the (left) row from which it is derived. An element of an array arrives with the row that
  contains the array.
- A row of an aggregate has no arrival number, and is ordered by its group columns. If rows have no group columns in
  common, they are ordered by all of their columns. This applies to a union of several aggregates, and to the elements
  of an array that an aggregate over a whole table builds.

An operator orders its changes by arrival number in any case. But it may miss a write that changes no value: a table's
Normalize drops a `-U`/`+U` pair of equal rows within one batch, but passes on the new number if the two changes are in
different batches. So the number becomes a column of the row, starting at the scan or the Normalize
(`LogicalNormalize.arrival`). Then each write changes the row, and reaches every operator above. If rows are never
written again, because they come only from append tables, the plan is left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sqlglot import exp

from rowkind.operators.aggregate.function import ARRIVALS
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank, LogicalTemporalFilter
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.changelog_modes import bare_scan, produced
from rowkind.service.plan.traits.emptiness import is_empty
from rowkind.service.plan.traits.unique_keys import in_order, unique_keys
from rowkind.service.plan.tree import Rules, first, inputs, over, rewritten

_PEERS = frozenset({"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "rank", "dense_rank"})
"""Window functions that return the same result for rows with equal order values, unless their frame counts rows."""

_Ordered = TypeVar("_Ordered", LogicalRank, LogicalOver, LogicalTemporalFilter)

_FARTHEST = 1 << 61
"""The largest absolute value up to which groups are ordered by the value of their integer column."""


@dataclass(frozen=True)
class _Arriving:
    """A node, and the columns by which its rows are ordered if nothing else determines their order.

    `numbers` are the columns with the arrival numbers of the table rows from which the rows are derived. `others` are
    columns that identify rows without an arrival number.
    """

    node: LogicalNode
    numbers: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All of these columns: first `numbers`, then `others`."""
        return (*self.numbers, *self.others)

    def over(self, node: LogicalNode) -> _Arriving:
        """Return the same columns for a node above this one."""
        return replace(self, node=node)


def add_arrival_ids(query: Query) -> Query:
    """Add an arrival number to the rows of each input whose arrival order affects the result and may change.

    >>> example(add_arrival_ids, "SELECT order_id FROM orders LIMIT 3")
    Rank row_number 1..3 order=[PROCTIME()] numbers=[…]
      Scan orders
    becomes
    Rank row_number 1..3 input.arrival=orders.#arrival order=[PROCTIME()] numbers=[…]
        input.ids=[orders.#arrival]
      Normalize arrival=orders.#arrival key=[orders.order_id]
        Scan orders
    """
    expiring = query.job.ttl is not None or bool(query.ttl_hints)
    rules: Rules = {
        LogicalAggregate: partial(_of_calls, expiring),
        LogicalRank: partial(_of_order, expiring),
        LogicalOver: partial(_of_order, expiring),
        LogicalTemporalFilter: partial(_of_order, expiring),
        LogicalLookup: partial(_of_nearest, expiring),
    }
    return replace(query, root=rewritten(query.root, rules))


def _of_order(expiring: bool, node: _Ordered) -> _Ordered:
    """Return the node, with arrival numbers in its input if its order may leave ties that affect the result."""
    if not _goes_by_arrival(node) or _decided(node.input.input, node.partition or (), node.order):
        return node
    return replace(node, input=_side(node.input, expiring=expiring))


def _goes_by_arrival(node: LogicalRank | LogicalOver | LogicalTemporalFilter) -> bool:
    """Whether the node's results depend on the order of tied rows."""
    if isinstance(node, LogicalRank):
        return "row_number" in (node.ranking.function, *node.numbers.values(), *node.asked.values())
    if isinstance(node, LogicalOver):
        return any(call.function not in _PEERS or call.frame.kind == "rows" for call in node.calls.values())
    return bool(node.order)


def _of_nearest(expiring: bool, node: LogicalLookup) -> LogicalLookup:
    """Return the lookup, with arrival numbers on its right side if several right rows may be equally near in time."""
    if node.match is None or node.match.versions:
        return node
    return replace(node, right=_side(node.right, expiring=expiring))


def _of_calls(expiring: bool, node: LogicalAggregate) -> LogicalAggregate:
    """Add columns that identify a row to the arguments of FIRST and LAST, so that a retraction finds its row's arrival.

    With the value as the only argument, a retraction would remove the oldest of several equal values, even if that
    value belongs to another row.
    """
    by_arrival = any(call.function in ARRIVALS for call in node.calls.values())
    if not by_arrival or produced(node.input.input) == "append":
        return node
    side = _side(node.input, expiring=expiring)
    calls = {
        name: replace(call, arguments=tuple(dict.fromkeys((*call.arguments, *side.ids))))
        if call.function in ARRIVALS
        else call
        for name, call in node.calls.items()
    }
    return replace(node, input=replace(side, ids=()), calls=calls)


def _decided(node: LogicalNode, partition: Iterable[str], order: Iterable[OrderColumn]) -> bool:
    """Whether the order leaves no ties between rows of a partition."""
    known = {*partition, *(each.column for each in order)}
    return any(key <= known for key in unique_keys(node))


def _side(side: LogicalInput, *, expiring: bool) -> LogicalInput:
    """Return the input with arrival numbers in its rows, unless the number of a row never changes."""
    if _arrives_once(side.input):
        return side
    if (scan := bare_scan(side.input)) is not None and scan.source.exact and scan.source.primary_key:
        # The table's retractions carry whole rows. So the operator finds each row by primary key, and sees every write.
        keyed = _with_columns(side.input, tuple(map(scan.name, scan.source.primary_key)))
        return replace(side, input=keyed.node, ids=keyed.others)
    found = _numbered(side.input, expiring=expiring)
    if not found.ids:
        found = replace(found, others=tuple(columns(found.node)))
    if len(found.numbers) == 1:
        return replace(side, input=found.node, arrival=found.numbers[0], ids=found.ids)
    name = f"{found.ids[0].rpartition('.')[0]}.{ARRIVAL}s"
    # The columns that break ties come first, so that they also break ties if rows are compared in packed form.
    outputs: dict[str, exp.Expr] = {each: resolved(each) for each in (*found.ids, *columns(found.node))}
    return replace(
        side,
        input=LogicalProject(found.node, {**outputs, name: _number(found)}),
        arrival=name,
        ids=found.ids,
    )


def _number(found: _Arriving) -> exp.Expr:
    """Return an expression for a row's arrival number: the latest number of the rows from which it is derived.

    The number of a group is negative, unlike the number of a record. Groups whose first column is an integer are
    ordered by that integer, up to `_FARTHEST`; all other groups are ordered by their packed columns.
    """
    if found.numbers:
        first, *others = map(resolved, found.numbers)
        return exp.Anonymous(this="GREATEST", expressions=[first, *others]) if others else first
    first_group = found.others[0]
    if types.family(columns(found.node)[first_group]) != "integer":
        return _bigint(exp.Literal.number(-1))
    most, least = (_bigint(exp.Literal.number(each)) for each in (_FARTHEST, -_FARTHEST))
    within = exp.Anonymous(this="LEAST", expressions=[_bigint(resolved(first_group)), most])
    within = exp.Anonymous(this="GREATEST", expressions=[within, least])
    return exp.Sub(this=within, expression=_bigint(exp.Literal.number(2 * _FARTHEST)))


def _bigint(value: exp.Expr) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build("BIGINT"))


def _arrives_once(node: LogicalNode) -> bool:
    """Whether each row is inserted only once, with the number of its record, and is never retracted."""
    if isinstance(node, LogicalAggregate | LogicalMatch):
        return isinstance(node, LogicalMatch)
    by_arrival = isinstance(node, LogicalLookup) and node.match is None
    below = inputs(node)[:1] if by_arrival else inputs(node)
    return produced(node) == "append" and all(map(_arrives_once, below))


def _numbered(node: LogicalNode, *, expiring: bool) -> _Arriving:
    """Return the node with the arrival numbers of its rows as columns."""

    def below(node: LogicalNode) -> _Arriving:
        return _numbered(node, expiring=expiring)

    match node:
        case LogicalProject():
            return _projected(node, below(node.input))
        case LogicalFilter() | LogicalScan() if isinstance(scan := _filtered(node), LogicalScan):
            return _of_table(node, scan, expiring=expiring)
        case LogicalNormalize() if isinstance(scan := _filtered(node.input.input), LogicalScan):
            name = scan.name(ARRIVAL)
            return _Arriving(replace(node, arrival=name), (name,))
        case LogicalJoin() | LogicalLookup():
            return _of_pairs(node, below(node.left.input), below(node.right.input))
        case LogicalAggregate():
            return _Arriving(node, others=node.group)
        case LogicalUnion():
            return _of_union(node, [below(each) for each in node.inputs])
        case LogicalMatch() | LogicalScan():
            return _Arriving(node)
    found = below(first(node))
    return found.over(over(node, found.node))


def _projected(node: LogicalProject, below: _Arriving) -> _Arriving:
    """Return the projection with the ordering columns, under the names that it gives them or else their own names."""
    names: dict[str, str] = {}
    for name, output in node.outputs.items():
        if isinstance(bare := output.unnest(), exp.Column):
            names.setdefault(bare.name, name)
    missing = {name: resolved(name) for name in below.ids if name not in names}
    above = replace(node, input=below.node, outputs={**missing, **node.outputs})
    numbers, others = (tuple(names.get(name, name) for name in part) for part in (below.numbers, below.others))
    return _Arriving(above, numbers, others)


def _filtered(node: LogicalNode) -> LogicalNode:
    """Return the node below any filters."""
    while isinstance(node, LogicalFilter):
        node = node.input
    return node


def _of_table(node: LogicalNode, scan: LogicalScan, *, expiring: bool) -> _Arriving:
    """Return a table's rows, possibly filtered, with their arrival numbers or the columns of their primary key."""
    name = scan.name(ARRIVAL)
    if is_empty(node):
        return _Arriving(node)
    if scan.source.mode == "append":
        return _Arriving(_numbered_scan(node), (name,))
    if scan.source.exact and (expiring or scan.source.ttl_ms is not None):
        # After a row has expired, rows derived from it may still be retracted, but only by the row's own retraction.
        return _with_columns(node, tuple(map(scan.name, scan.source.primary_key)))
    keys = in_order(unique_keys(node), node)
    reason = "ties in the order are broken by the arrival of the record that last wrote each row"
    return _Arriving(LogicalNormalize(LogicalInput(node), keys[0] if keys else (), reason, arrival=name), (name,))


def _numbered_scan(node: LogicalNode) -> LogicalNode:
    return replace(node, numbered=True) if isinstance(node, LogicalScan) else over(node, _numbered_scan(first(node)))


def _with_columns(node: LogicalNode, names: tuple[str, ...]) -> _Arriving:
    """Return the node, extended with the columns `names` of the scan below it."""
    if isinstance(node, LogicalProject):
        return _projected(node, _with_columns(node.input, names))
    if isinstance(node, LogicalFilter):
        return _Arriving(over(node, _with_columns(node.input, names).node), others=names)
    return _Arriving(node, others=names)


def _of_pairs(node: LogicalJoin | LogicalLookup, left: _Arriving, right: _Arriving) -> _Arriving:
    keeps_left = isinstance(node, LogicalLookup) or node.keeps_left
    if keeps_left:
        return left.over(replace(node, left=replace(node.left, input=left.node)))
    right = _renamed(right, columns(left.node))
    both = replace(node, left=replace(node.left, input=left.node), right=replace(node.right, input=right.node))
    return _Arriving(both, left.numbers + right.numbers, left.others + right.others)


def _renamed(right: _Arriving, taken: Mapping[str, object]) -> _Arriving:
    """Return a join's right side with columns renamed whose names are `taken` by the left side.

    Both sides may read the same scan.
    """
    names = {name: name for name in columns(right.node)}
    for name in right.ids:
        while names[name] in taken:
            names[name] += "'"
    if all(name == new for name, new in names.items()):
        return right
    numbers, others = (tuple(map(names.__getitem__, part)) for part in (right.numbers, right.others))
    return _Arriving(LogicalProject(right.node, {new: resolved(name) for name, new in names.items()}), numbers, others)


def _of_union(node: LogicalUnion, branches: list[_Arriving]) -> _Arriving:
    """Return the union with one arrival number column for all branches; it is NULL for rows without a number."""
    names = [each.numbers[0] for each in branches if each.numbers]
    if not names:
        return _Arriving(node)
    name = f"{names[0]}+"
    inputs = tuple(LogicalProject(each.node, _one_number(each, name, columns(node))) for each in branches)
    return _Arriving(replace(node, inputs=inputs), (name,))


def _one_number(branch: _Arriving, name: str, below: Mapping[str, object]) -> dict[str, exp.Expr]:
    number = _number(branch) if branch.numbers else _bigint(exp.Null())
    return {name: number, **{each: resolved(each) for each in below}}
