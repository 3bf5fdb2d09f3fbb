"""Run three or more inner joins in the order that stores the fewest intermediate rows.

Each join stores its two inputs, so the cost of an order is the size of its intermediate results. There are no
statistics. Orders are compared by what the plan knows for certain, or by what is usual for references
(`traits.join_graph`). These are the criteria, the most important one first:

    crosses     fewer joins without an equality, in which each row is paired with every row of the other input; implied
                equalities count as equalities, such as a.k = c.k, which follows from a.k = b.k and b.k = c.k
    rows        smaller intermediate results: rows of one input rather than pairs of unrelated rows; referenced rows
                rather than rows that refer to them; results that already include the filtered inputs. A table that
                must be stored because it leaves out old rows counts as an intermediate result
    restless    groups and ranks joined later, because they change with most rows, and so does everything joined to them
    shuffles    fewer shuffles: joins by the same key one after the other, and the last join partitioned as its
                consumer needs it

If two orders are equal by all criteria, the order of the inputs in the SQL decides. The written order is kept unless
another order has fewer crosses, or has smaller intermediate results and is not worse otherwise, or has equally large
intermediate results and fewer shuffles. The written order is also kept if the intermediate results consist of inputs
that do not refer to each other, because it is then unknown which results are smaller.

    customers JOIN orders JOIN lines JOIN nations      as written, orders joined with lines are stored to join nations
    nations JOIN customers JOIN orders JOIN lines      reordered, only orders joined with customers are stored

Inner joins are associative and commutative under any changes, including retractions. The written order is kept for

    outer, semi and anti joins, lookups     they are inputs like any other, each with its own joins below
    a condition that may fail               another order would evaluate it for rows that the written order removes
    watermarks                              which rows are late depends on what they were joined with before
    hints on inputs, and ORDERED            they refer to the joins as written

A TTL starts when a row is written. So a row that is joined late in one order may already have expired in another order.
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
"""The maximum number of inputs to reorder. The search examines every subset of the inputs."""


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
    """A walk over a query that reorders its joins.

    Joins that occur twice, as below a domain (`sql.domain`), are reordered only once, so that both remain equal.
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
    """Yield the inputs of joins that may be reordered, from left to right, each with the JOIN that adds it."""
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
    """Return the partitioning that a node needs for each of its inputs."""
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
    """Return the joins in their written order, over the given inputs."""
    if not is_free(node):
        return next(inputs)
    return with_inputs(node, lambda each: _over(each, inputs))


def _reason(graph: JoinGraph, before: Cost, best: Cost) -> str:
    """Return why the order with the cost `best` is better than the written one; empty if it is not."""
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
    """Return why the new order stores fewer intermediate rows than the old one; empty if it does not."""
    if new.order > old.order:
        return ""
    if new.inputs < old.inputs:
        return "inputs whose rows multiply each other are joined last, so fewer rows are stored in between"
    if new.heights == old.heights:
        return "conditions apply earlier, so fewer rows are stored in between" if new.grain == old.grain else ""
    if new.grain & ~graph.determined(old.grain, graph.all):
        return ""
    return "inputs are joined before the inputs that refer to them, so fewer rows are stored in between"
