"""Push semi joins below joins, so that the rows that they remove are neither joined nor stored in these joins.

    (a JOIN b) SEMI JOIN s ON a.k = s.k     becomes     (a SEMI JOIN s ON a.k = s.k) JOIN b

Whether EXISTS, NOT EXISTS, IN or NOT IN is true for a row depends only on the columns that the condition reads. If all
of these columns belong to one side of a join, the result is the same for all pairs that contain the same row of that
side. So the two joins can be swapped under any changes, including retractions, and the unique keys do not change: a
semi join has the unique keys of its left side. A side that the join pads is an exception, because null-padded rows must
be filtered too.

Pushing down pays off if the join emits at least one row for each row of the side: the semi join then stores a row of
`a` once instead of storing its pairs. In the following cases, the semi join stays where it is written:

    a condition on the other side     the join emits few pairs, and the semi join would store all rows of its side
    a side that leaves out old rows   if the join's key is the table's key and the semi join's key is not, a Normalize
                                      would have to find the old rows
    EXISTS as a value                 it removes nothing, so it is pushed down only if the join multiplies rows
    below an aggregate                the semi join would store rows instead of groups. It may be pushed further, into a
                                      join side with one row per group, unless that side would then retract rows
    an expression that may fail       it would be evaluated for rows that the join removes
    watermarks                        a row that a semi join emits late would be late for the join
    hints on inputs, and ORDERED      they refer to the joins as written
    a domain (`sql.domain`)           the right side is computed from the same join, and the two share it
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalProject, LogicalScan, LogicalUnion
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize
from rowkind.service.plan.passes.derive_state_cleanup import timed_tables
from rowkind.service.plan.passes.extract_equal_keys import equal_sides, extracted, with_keys
from rowkind.service.plan.passes.normalize_inputs import finds_old_rows
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conditions import may_fail, may_move
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.sql.hints import is_ordered
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.unique_keys import matches_one, unique_keys
from rowkind.service.plan.tree import bottom_up, walk

_PLACED = "it does not depend on the join that follows, and filters rows before that join"


def push_semi_joins(query: Query) -> Query:
    """Push semi, anti and mark joins below the joins that they do not depend on.

    >>> example(push_semi_joins, '''
    ...     SELECT o.order_id, c.name FROM orders o JOIN customers c ON o.customer_id = c.customer_id
    ...     WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.order_id)''')
    Join semi condition=[exists_1.p.order_id = o.order_id]
      Join inner condition=[o.customer_id = c.customer_id]
        Scan orders o
        Scan customers c
      Scan payments exists_1.p
    becomes
    Join inner condition=[o.customer_id = c.customer_id]
      Join semi condition=[exists_1.p.order_id = o.order_id]
        Scan orders o
        Scan payments exists_1.p
      Scan customers c
    """
    if query.ttl_hints or query.skew_hints:
        return query
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalJoin) or not node.keeps_left or timed_tables(node) or _is_of_itself(node):
        return node
    if is_ordered(node.at) or not all(map(may_move, node.condition)):
        return node
    return _sunk(node, pays=node.filters_left) or node


def _is_of_itself(semi: LogicalJoin) -> bool:
    """Whether the right side is computed from the tables of the left side, as a domain is."""
    left, right = ({each.path for each in walk(side.input) if isinstance(each, LogicalScan)} for side in semi.sides)
    return bool(left & right)


def _sunk(semi: LogicalJoin, group: frozenset[str] = frozenset(), *, pays: bool) -> LogicalNode | None:
    """Return the input of a semi join with the semi join pushed into it; None if that does not pay off.

    If `group` is not empty, the semi join must be pushed into a join side with one row per group. `pays` is true if
    pushing the semi join below one more join pays off in any case.
    """
    below = semi.left.input
    match below:
        case LogicalProject() if not below.stands:
            return _through_project(semi, below, group, pays=pays)
        case LogicalAggregate(is_global=False) if semi.filters_left:
            return _through_groups(semi, below)
        case LogicalJoin(kind="inner" | "left" | "right"):
            return _into_side(semi, below, group, pays=pays)
    return None


def _through_project(
    semi: LogicalJoin, project: LogicalProject, group: frozenset[str], *, pays: bool
) -> LogicalNode | None:
    condition = tuple(substitute(each, project.outputs) for each in semi.condition)
    told = [project.outputs[name].unnest() for name in group]
    if any(map(may_fail, condition)) or not all(isinstance(each, exp.Column) for each in told):
        return None
    lower = replace(semi, left=replace(semi.left, input=project.input), condition=condition)
    found = _sunk(lower, frozenset(each.name for each in told), pays=pays)
    answer = {} if semi.answer is None else {semi.answer: resolved(semi.answer, like=semi.at)}
    return None if found is None else replace(project, input=found, outputs={**project.outputs, **answer})


def _through_groups(semi: LogicalJoin, aggregate: LogicalAggregate) -> LogicalNode | None:
    read = _asked(semi)
    if not read <= set(aggregate.group):
        return None
    found = _sunk(replace(semi, left=aggregate.input), read, pays=True)
    if found is None or produced(found) != produced(aggregate.input.input):
        return None
    return replace(aggregate, input=replace(aggregate.input, input=found))


def _into_side(semi: LogicalJoin, join: LogicalJoin, group: frozenset[str], *, pays: bool) -> LogicalNode | None:
    is_left = _asked(semi) <= columns(join.left.input).keys()
    own, other = join.sides if is_left else join.sides[::-1]
    if not _asked(semi) <= columns(own.input).keys() or (join.pads_right if is_left else join.pads_left):
        return None
    if not _leaves_all(join, other):
        return None
    keyed = extracted(join)
    assert isinstance(keyed, LogicalJoin), "extracting keys from a join returns a join"
    mine, beyond = keyed.sides if is_left else keyed.sides[::-1]
    pays = pays or not matches_one(keyed, beyond)
    below = replace(semi, left=LogicalInput(own.input), placed=_PLACED)
    found = _sunk(below, group, pays=pays)
    if found is None:
        is_one_for_each = not group or any(key <= group for key in unique_keys(mine.input))
        stays_told = finds_old_rows(with_keys(below), below.left) or not finds_old_rows(keyed, mine)
        if not (pays and is_one_for_each and stays_told):
            return None
        found = below
    changed = replace(own, input=found)
    return replace(join, left=changed) if is_left else replace(join, right=changed)


def _asked(semi: LogicalJoin) -> frozenset[str]:
    """Return the left columns that a semi join reads. If there are none, return a name that no column has."""
    found = set[str]().union(*map(reads, semi.condition)) & columns(semi.left.input).keys()
    return frozenset(found or [""])


def _leaves_all(join: LogicalJoin, other: LogicalInput) -> bool:
    """Whether a join's result contains all rows of the side opposite `other`, as far as the plan shows.

    The result of an inner join contains them if the join's condition consists of equalities between the sides, and if
    `other` contains all rows of its tables. This assumes that each row refers to a row that exists.
    """
    if join.kind != "inner":
        return True
    left, right = (set(columns(side.input)) for side in join.sides)
    return all(equal_sides(each, left, right) for each in join.condition) and _is_whole(other.input)


def _is_whole(node: LogicalNode) -> bool:
    """Whether neither this node nor any node below it removes rows."""
    known = LogicalScan | LogicalProject | LogicalAggregate | LogicalUnion | LogicalNormalize | LogicalJoin
    return all(
        isinstance(each, known) and not (isinstance(each, LogicalJoin) and each.filters_left) for each in walk(node)
    )
