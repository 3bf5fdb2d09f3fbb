"""Run three or more inner joins in the order that stores the fewest rows between them.

Each join stores its two inputs, so the cost of an order is what it joins in between. There are no statistics. Orders
are compared by what the plan knows for certain, or by what is usual for references (`traits.join_graph`), namely by

    crosses     fewer joins without an equality, in which each row meets every other; implied equalities count, such as
                a.k = c.k from a.k = b.k and b.k = c.k
    rows        less in between: rows of one input rather than pairs that multiply each other; rows that are referred to
                rather than rows that refer to them; with the conditions of other inputs applied. A table that leaves
                out old rows and would be stored for that reason counts
    restless    groups and ranks later, since they change with most rows, and so does what is joined to them
    shuffles    fewer: joins by the same key one after the other, the last of them as the consumer wants it

in this order of importance. If orders are equal in all of this, the order of the inputs in the SQL decides. The written
order stays unless another has fewer crosses, or has less in between and is no worse otherwise, or has as much in
between and fewer shuffles. If "less" would compare inputs that do not refer to each other, nothing is known, and the
written order stays too.

    customers JOIN orders JOIN lines JOIN nations      as written, lines with orders are stored to meet nations
    nations JOIN customers JOIN orders JOIN lines      reordered, only orders are

Inner joins are associative and commutative under any changes, retractions included. The written order stays for

    outer, semi and anti joins, lookups     they are inputs like any other, each with its own joins below
    a condition that may fail               another order would evaluate it for rows that the written one removes
    watermarks                              which rows are late depends on what they were joined with before
    hints on inputs, and ORDERED            they refer to the joins as they are written

A TTL runs from when a row was written, so a row that is joined late in one order may have expired in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalWindow
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.passes.derive_state_cleanup import timed_tables
from rowkind.service.plan.passes.extract_equal_keys import extracted, with_keys
from rowkind.service.plan.passes.join_costs import Cost, Search, Wanted, by_columns, is_column, is_free, told
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.join_graph import JoinGraph, JoinSize
from rowkind.service.plan.traits.unique_keys import unique_keys
from rowkind.service.plan.tree import with_inputs

_MOST = 8
"""How many inputs are put in order at most. The number of orders to examine grows with the subsets of the inputs."""


def order_joins(query: Query) -> Query:
    """Reorder inner joins if another order stores fewer rows.

    >>> example(order_joins, '''
    ...     SELECT c.name, p.paid FROM customers c, payments p, orders o
    ...     WHERE c.customer_id = o.customer_id AND p.order_id = o.order_id''')
    Join inner condition=[c.customer_id = o.customer_id AND p.order_id = o.order_id]
      Join inner
        Scan customers c
        Scan payments p
      Scan orders o
    becomes
    Join inner condition=[p.order_id = o.order_id]
      Join inner condition=[c.customer_id = o.customer_id]
        Scan customers c
        Scan orders o
      Scan payments p
    """
    if query.ttl_hints or query.skew_hints:
        return query
    keyed = query.sink.mode != "append" and query.sink.key
    wanted = Wanted(tuple(query.sink.key), by_any=True) if keyed else None
    return replace(query, root=_Ordering().visit(query.root, wanted))


@dataclass
class _Ordering:
    """One walk over a query.

    Joins that occur twice, as below a domain, are put in order once, so that they stay equal.
    """

    _done: list[tuple[JoinGraph, LogicalNode]] = field(default_factory=list)

    def visit(self, node: LogicalNode, wanted: Wanted | None) -> LogicalNode:
        if not is_free(node):
            below = iter(_wishes(node, wanted))
            return with_inputs(node, lambda each: self.visit(each, next(below, None)))
        assert isinstance(node, LogicalJoin), "a free node is a join"
        inputs = list(_inputs(node))
        nodes = tuple(self.visit(each, None) for each, _ in inputs)
        graph = JoinGraph(nodes, tuple(unique_keys(extracted(each)) for each in nodes), tuple(_conditions(node)))
        known = (ordered for other, ordered in self._done if other == graph)
        ordered = next(known, None) or _ordered(node, graph, [at for _, at in inputs], wanted)
        self._done.append((graph, ordered))
        return ordered


def _inputs(node: LogicalNode, at: exp.Expr | None = None) -> Iterator[tuple[LogicalNode, exp.Expr | None]]:
    """Yield the inputs of joins that may change places, from left to right, each with the JOIN that adds it."""
    if is_free(node) and isinstance(node, LogicalJoin):
        yield from _inputs(node.left.input, at)
        yield from _inputs(node.right.input, node.at)
    else:
        yield node, at


def _conditions(node: LogicalNode) -> Iterator[exp.Expr]:
    if is_free(node) and isinstance(node, LogicalJoin):
        yield from _conditions(node.left.input)
        yield from _conditions(node.right.input)
        yield from node.condition


def _wishes(node: LogicalNode, wanted: Wanted | None) -> Sequence[Wanted | None]:
    """Return how a node wants the rows of each input partitioned."""
    match node:
        case LogicalFilter():
            return [wanted]
        case LogicalProject() if not node.stands and wanted is not None:
            told = {name: output.unnest().name for name, output in node.outputs.items() if is_column(output)}
            names = tuple(told[name] for name in wanted.columns if name in told)
            return [replace(wanted, columns=names) if wanted.by_any or len(names) == len(wanted.columns) else None]
        case LogicalWindow():
            return [Wanted(node.partition)]
        case LogicalUnary(shards_by=tuple() as names):
            return [Wanted(names)]
        case LogicalJoin():
            keys = with_keys(node).keys
            return [by_columns([key.left for key in keys]), by_columns([key.right for key in keys])]
        case _:
            return []


def _ordered(
    written: LogicalJoin, graph: JoinGraph, at: Sequence[exp.Expr | None], wanted: Wanted | None
) -> LogicalNode:
    """Return the joins in the best order."""
    as_written = _over(written, iter(graph.nodes))
    alone = any(of.bit_count() == 1 for of in graph.read)
    if not 2 < len(graph.nodes) <= _MOST or alone or timed_tables(written):
        return as_written
    search = Search(graph)
    before, parts, _ = search.of_tree(written, iter(range(len(graph.nodes))))
    before = told(before, wanted, parts)
    best, order = search.best(before, wanted)
    if not (reason := _reason(graph, before, best)):
        return as_written
    joined, inside = graph.nodes[order[0]], 1 << order[0]
    for number in order[1:]:
        own = 1 << number
        condition = graph.between(inside, own)
        place = at[number] or at[order[0]] or written.at
        joined = LogicalJoin(LogicalInput(joined), LogicalInput(graph.nodes[number]), condition, "inner", place)
        inside |= own
    assert isinstance(joined, LogicalJoin), "there are several inputs"
    always = tuple(each for each, of in zip(graph.conditions, graph.read, strict=True) if not of)
    return replace(joined, condition=(*joined.condition, *always), placed=reason)


def _over(node: LogicalNode, inputs: Iterator[LogicalNode]) -> LogicalNode:
    """Return joins as they are written, over other inputs."""
    if not is_free(node):
        return next(inputs)
    return with_inputs(node, lambda each: _over(each, inputs))


def _reason(graph: JoinGraph, before: Cost, best: Cost) -> str:
    """Return why an order is better than the written one; empty if it is not."""
    if best.crosses < before.crosses:
        return "otherwise, each row of one input would meet every row of another, in one shard"
    if best.crosses > before.crosses or best.restless > before.restless or best.shuffles > before.shuffles:
        return ""
    differing = ((new, old) for new, old in zip(best.rows, before.rows, strict=False) if new.order != old.order)
    if (rows := next(differing, None)) is not None:
        return _fewer_rows(graph, *rows)
    if len(best.rows) < len(before.rows):
        return "fewer tables must be stored to find old rows"
    alike = len(best.rows) == len(before.rows) and best.shuffles < before.shuffles
    return "joins on the same key run in one stage" if alike else ""


def _fewer_rows(graph: JoinGraph, new: JoinSize, old: JoinSize) -> str:
    """Return why a new order stores fewer rows between its joins than the old one; empty if it does not."""
    if new.order > old.order:
        return ""
    if new.inputs < old.inputs:
        return "inputs whose rows multiply each other are joined last, so fewer rows are stored in between"
    if new.heights == old.heights:
        return "conditions apply earlier, so fewer rows are stored in between" if new.grain == old.grain else ""
    if new.grain & ~graph.determined(old.grain, graph.all):
        return ""
    return "inputs are joined before the inputs that refer to them, so fewer rows are stored in between"
