"""The passes over a logical plan, in five phases.

    rewrite           express the query in the simplest algebra
    time              decide which rows wait for a watermark, and which rows are final
    keys and state    make inputs exact, choose rank strategies, layouts and TTLs, and decide when state is dropped
    prune and share   remove unread columns, merge equal operators, and reuse the state of upstream operators
    check             enforce the rules that a plan must satisfy, and report errors with their positions

A phase assumes the properties that earlier phases ensure. For every planner case, tests/plan/test_phases.py runs the
phases in order and, after each phase, checks the properties that the phase `ensures`. A phase must run only once: a
second run might rewrite its own output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalWindow
from rowkind.service.plan.logical.grouping import LogicalMatch
from rowkind.service.plan.logical.node import LogicalBinary, LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.per_row import LogicalStamp
from rowkind.service.plan.passes.add_arrival_ids import add_arrival_ids
from rowkind.service.plan.passes.add_row_digests import add_row_digests
from rowkind.service.plan.passes.aggregate_panes import aggregate_panes
from rowkind.service.plan.passes.apply_allowed_lateness import apply_allowed_lateness
from rowkind.service.plan.passes.buffer_until_watermark import buffer_until_watermark
from rowkind.service.plan.passes.check_functions import check_functions
from rowkind.service.plan.passes.check_sink import check_sink
from rowkind.service.plan.passes.choose_extremes import choose_extremes
from rowkind.service.plan.passes.choose_layouts import choose_layouts
from rowkind.service.plan.passes.choose_rank_strategies import choose_rank_strategies
from rowkind.service.plan.passes.compare_with_clock import compare_with_clock
from rowkind.service.plan.passes.delay_null_padding import delay_null_padding
from rowkind.service.plan.passes.delay_until_final import delay_until_final
from rowkind.service.plan.passes.derive_state_cleanup import derive_state_cleanup
from rowkind.service.plan.passes.extract_equal_keys import extract_equal_keys
from rowkind.service.plan.passes.factor_alternatives import factor_alternatives
from rowkind.service.plan.passes.filter_by_clock import filter_by_clock
from rowkind.service.plan.passes.limit_time import check_numbers, limit_time
from rowkind.service.plan.passes.mark_joins_to_semi_joins import mark_joins_to_semi_joins
from rowkind.service.plan.passes.merge_equivalent_operators import merge_equivalent_operators
from rowkind.service.plan.passes.narrow_groups import narrow_groups
from rowkind.service.plan.passes.narrow_joins import narrow_joins
from rowkind.service.plan.passes.normalize_inputs import leaves_out_old_rows, normalize_inputs
from rowkind.service.plan.passes.order_joins import order_joins
from rowkind.service.plan.passes.order_matches import order_matches
from rowkind.service.plan.passes.prune_columns import prune_columns
from rowkind.service.plan.passes.push_filters import push_filters
from rowkind.service.plan.passes.push_semi_joins import push_semi_joins
from rowkind.service.plan.passes.release_all_due_below_windows import release_all_due_below_windows
from rowkind.service.plan.passes.resolve_conflicts import resolve_conflicts
from rowkind.service.plan.passes.retract_expired_rows import retract_expired_rows
from rowkind.service.plan.passes.reuse_join_state import reuse_join_state
from rowkind.service.plan.passes.rewrite_ranks import rewrite_ranks
from rowkind.service.plan.passes.sort_by_time import sort_by_time
from rowkind.service.plan.passes.split_distinct import split_distinct
from rowkind.service.plan.passes.spread_hot_keys import spread_hot_keys
from rowkind.service.plan.passes.stamp_arrivals import stamp_arrivals
from rowkind.service.plan.passes.stamp_rows import stamp_rows
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.clock_conditions import is_now, reads_clock
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.traits.unique_keys import matches_one
from rowkind.service.plan.tree import sides, walk

Pass = Callable[[Query], Query]
Violations = Callable[[Query], Iterator[LogicalNode]]
"""A check of a property that a phase ensures. It yields the nodes that violate the property."""


def windows(query: Query) -> Iterator[LogicalNode]:
    """Yield remaining window nodes. Each of them should have become a rank or an Over."""
    yield from (node for node in walk(query.root) if isinstance(node, LogicalWindow))


def clock_conditions(query: Query) -> Iterator[LogicalNode]:
    """Yield nodes whose condition reads NOW(). Each of these conditions should have become a temporal filter."""
    for node in walk(query.root):
        conditions = node.conjuncts if isinstance(node, LogicalFilter) else ()
        conditions = node.condition if isinstance(node, LogicalBinary) else conditions
        if any(is_now(part) or reads_clock(part) for each in conditions for part in each.walk()):
            yield node


def unextracted_keys(query: Query) -> Iterator[LogicalNode]:
    """Yield lookups that still have a condition. All equalities in the condition should have become keys."""
    yield from (node for node in walk(query.root) if isinstance(node, LogicalLookup) and node.condition)


def unordered_matches(query: Query) -> Iterator[LogicalNode]:
    """Yield row patterns without a watermark that puts their rows in order."""
    matches = (node for node in walk(query.root) if isinstance(node, LogicalMatch))
    yield from (node for node in matches if node.input.closing is None)


def changing_rows_in_patterns(query: Query) -> Iterator[LogicalNode]:
    """Yield row patterns and stamps whose input may contain changes other than inserts."""
    for node in walk(query.root):
        if isinstance(node, LogicalMatch | LogicalStamp) and produced(node.input.input) != "append":
            yield node


def inexact_inputs(query: Query) -> Iterator[LogicalNode]:
    """Yield operators that need the old row of each update although their input omits old rows."""
    for node in walk(query.root):
        needs = isinstance(node, LogicalUnary) and node.finds_old_rows is not None
        if needs and any(leaves_out_old_rows(side.input) for side in sides(node)):
            yield node


def unchosen_layouts(query: Query) -> Iterator[LogicalNode]:
    """Yield joins that store an input as a multiset although each key has at most one row."""
    for node in walk(query.root):
        if isinstance(node, LogicalJoin) and any(_is_plain(node, side) for side in node.sides):
            yield node


def _is_plain(join: LogicalJoin, side: LogicalInput) -> bool:
    return side.layout == "multiset" and matches_one(join, side)


def uncarried_columns(query: Query) -> Iterator[LogicalNode]:
    """Yield operators whose rows do not carry every column that the operator reads."""
    for node in walk(query.root):
        carried = {name for side in sides(node) for name in side.carried}
        read = node.reads if isinstance(node, LogicalUnary) else frozenset[str]()
        if isinstance(node, LogicalJoin):
            read = frozenset().union(*map(reads, node.condition))
        if not read & _columns_below(node) <= carried:
            yield node


def _columns_below(node: LogicalNode) -> frozenset[str]:
    return frozenset(name for side in sides(node) for name in columns(side.input))


@dataclass(frozen=True)
class Phase:
    """A sequence of passes.

    `assumes` contains the properties that earlier phases must have ensured. `ensures` contains the properties that this
    phase ensures.
    """

    name: str
    passes: tuple[Pass, ...]
    assumes: tuple[Violations, ...] = ()
    ensures: tuple[Violations, ...] = ()

    def __call__(self, query: Query) -> Query:
        """Run all passes on a query and return the resulting query. Raises Refusal."""
        for each in self.passes:
            query = each(query)
        return query


_ALGEBRA = (windows, clock_conditions, unextracted_keys)
_TIMES = (unordered_matches, changing_rows_in_patterns)
_STATE = (inexact_inputs, unchosen_layouts)
_COLUMNS = (uncarried_columns,)

REWRITE = Phase(
    "rewrite",
    (
        compare_with_clock,
        factor_alternatives,
        narrow_groups,
        narrow_joins,
        push_filters,
        mark_joins_to_semi_joins,
        push_semi_joins,
        order_joins,
        filter_by_clock,
        aggregate_panes,
        rewrite_ranks,
        split_distinct,
        extract_equal_keys,
        resolve_conflicts,
    ),
    ensures=_ALGEBRA,
)
TIME = Phase(
    "time",
    (
        retract_expired_rows,
        add_arrival_ids,
        delay_null_padding,
        stamp_arrivals,
        buffer_until_watermark,
        order_matches,
        sort_by_time,
        stamp_rows,
        delay_until_final,
    ),
    assumes=_ALGEBRA,
    ensures=_TIMES,
)
KEYS_AND_STATE = Phase(
    "keys and state",
    (
        normalize_inputs,
        check_sink,
        choose_rank_strategies,
        choose_extremes,
        spread_hot_keys,
        choose_layouts,
        limit_time,
        derive_state_cleanup,
        apply_allowed_lateness,
        release_all_due_below_windows,
    ),
    assumes=(*_ALGEBRA, *_TIMES),
    ensures=_STATE,
)
PRUNE_AND_SHARE = Phase(
    "prune and share",
    (prune_columns, merge_equivalent_operators, add_row_digests, reuse_join_state),
    assumes=(*_ALGEBRA, *_TIMES, *_STATE),
    ensures=_COLUMNS,
)
CHECK = Phase("check", (check_numbers, check_functions), assumes=(*_ALGEBRA, *_TIMES, *_STATE, *_COLUMNS))
PHASES = (REWRITE, TIME, KEYS_AND_STATE, PRUNE_AND_SHARE, CHECK)
PASSES = tuple(each for phase in PHASES for each in phase.passes)
