"""GROUP BY, HAVING and aggregate functions: plans one Aggregate, and rewrites later expressions over its columns.

A Project below the Aggregate computes the group expressions, the calls' arguments and their filters. Equal calls are
computed once, and so are equal group expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, KeysView, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.aggregation import OrderColumn
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import by_name, columns
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.logical.calc import LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.calls import is_unknown, no_function
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.job_functions import with_types
from rowkind.service.plan.scalar.scalars import Columns, compile_condition, resolved, show, type_of
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.scalar.values import OrEmpty
from rowkind.service.plan.sql.aggregates import (
    ParsedCall,
    aggregate_call,
    aggregate_type,
    is_aggregate,
    is_window_function,
)
from rowkind.service.plan.sql.context import Names
from rowkind.service.plan.sql.grouping_sets import GroupingSets, grouping_sets, written_columns
from rowkind.service.plan.sql.hints import no_split
from rowkind.service.plan.sql.scope import outside_queries
from rowkind.service.plan.sql.select_list import SelectList
from rowkind.service.python.function import PythonFunction

_LONGEST = 30
_NOT_GROUPED = (
    "the column {0} is neither in GROUP BY nor inside an aggregate function: group by it, or write MAX({0}) or "
    "ANY_VALUE({0})"
)


def calls(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregate calls in an expression, except calls inside another aggregate call."""
    if is_aggregate(node) and not is_window_function(node):
        yield node
    else:
        for child in node.iter_expressions():
            yield from calls(child)


def _not_grouped(column: exp.Column) -> Refusal:
    """Return the error for a column that is not grouped.

    If the column is an argument of an unknown function, the error names the function, which the user may have taken for
    an aggregate function.
    """
    around: exp.Expr | None = column
    while around is not None:
        if is_unknown(around):
            return no_function(around)
        around = around.parent
    return Refusal(_NOT_GROUPED.format(column.name.rpartition(".")[2]), column)


def no_aggregates(node: exp.Expr | None, clause: str) -> None:
    """Refuse aggregate functions in a clause that is evaluated before grouping. Subqueries are not checked."""
    for each in outside_queries(node) if node is not None else ():
        if is_aggregate(each) and not is_window_function(each):
            raise Refusal(
                f"aggregate functions are not allowed in {clause}: write HAVING, or compute the value in a "
                "derived table",
                each,
            )


def stem(node: exp.Expr) -> str:
    """Return a short name derived from an expression."""
    text = re.sub(r"[^a-z0-9]+", "_", re.sub(r"\b\w+\.", "", show(node).lower())).strip("_")
    return text[:_LONGEST].rstrip("_") or "value"


@dataclass
class Grouping:
    """Collects a SELECT's group expressions and aggregate calls.

    - `below`: the rows to be grouped.
    - `later`: the columns for subquery results that are joined only after grouping.
    - `in_sets`: the SELECT has grouping sets. The group columns get new names, because aggregate calls still read the
      original columns.
    """

    below: LogicalNode
    names: Names
    later: KeysView[str]
    in_sets: bool = False
    sets: GroupingSets | None = field(default=None, init=False)
    _types: Columns = field(init=False)
    _groups: dict[exp.Expr, str] = field(default_factory=dict)
    _linked: dict[exp.Expr, str] = field(default_factory=dict)
    _computed: dict[exp.Expr, str] = field(default_factory=dict)
    _calls: dict[ParsedCall, str] = field(default_factory=dict)
    _built: dict[str, LogicalAggregateCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._types = by_name(columns(self.below))

    def group_by(self, node: exp.Expr, at: exp.Expr, name: str = "") -> str:
        """Add a resolved expression to the group expressions, and return its column. Raises Refusal."""
        bare = node.unnest()
        for call in calls(bare):
            raise Refusal(
                "GROUP BY cannot contain an aggregate function: group by columns that are not aggregated", call
            )
        for window in bare.find_all(exp.Window):
            raise Refusal("GROUP BY cannot contain a window function: compute it in a derived table", window)
        if bare not in self._groups:
            self._check_orderable(bare, at)
            self._groups[bare] = self._named(bare, name) if self.in_sets else self._column(bare, name)
        return self._groups[bare]

    def link_by(self, node: exp.Expr, at: exp.Expr) -> str:
        """Group by an expression that links a subquery to an outer row, in every grouping set; return its column.

        Raises Refusal.
        """
        if not self.in_sets:
            return self.group_by(node, at)
        bare = node.unnest()
        if bare not in self._linked:
            self._check_orderable(bare, at)
            self._linked[bare] = self._named(bare, "")
        return self._linked[bare]

    @property
    def group(self) -> tuple[str, ...]:
        """The group columns."""
        own = dict.fromkeys([*self._groups.values(), *self._linked.values()])
        return (*own, *([self.sets.id] if self.sets is not None else []))

    @property
    def of_empty(self) -> dict[str, exp.Expr]:
        """Replacements for the columns of calls whose result for an empty group is not NULL: 0, or an empty array."""
        found: dict[str, exp.Expr] = {}
        for name, call in self._built.items():
            if call.function == "count":
                found[name] = exp.Coalesce(this=resolved(name), expressions=[exp.Literal.number(0)])
            elif call.function in ("collect_list", "collect_set"):
                found[name] = OrEmpty(this=resolved(name))
        return found

    def over(self, node: exp.Expr, name: str = "") -> exp.Expr:
        """Rewrite a resolved expression over the Aggregate's columns. Raises Refusal.

        `name` is the name of the result column that the expression defines, if any.
        """
        whole = node.unnest()

        def rewritten(each: exp.Expr) -> exp.Expr:
            bare = each.unnest()
            if bare in self._groups:
                return resolved(self._groups[bare], like=bare)
            if isinstance(bare, exp.Grouping | exp.GroupingId):
                return self._grouping(bare)
            if is_aggregate(bare) and not is_window_function(bare):
                return resolved(self._call(bare, name if whole == bare else ""), like=bare)
            if isinstance(each, exp.Column) and each.name not in self.later:
                raise _not_grouped(each)
            return each

        return node.transform(rewritten)

    def aggregate(self, *, is_global: bool, at: exp.Expr, split: exp.Expr | None) -> LogicalAggregate:
        """Return the Aggregate. Raises Refusal."""
        if not any(call.distinct for call in self._built.values()):
            no_split(split)
        inputs = [*self._groups.values(), *self._linked.values()]
        for call in self._built.values():
            inputs += call.reads
        groups = self._groups if self.in_sets else {}
        named = (*self._computed.items(), *groups.items(), *self._linked.items())
        by_column = {name: node for node, name in named}
        outputs = {name: by_column.get(name, resolved(name)) for name in dict.fromkeys(inputs)}
        rows = LogicalProject(self.below, outputs)
        return LogicalAggregate(
            LogicalInput(rows if self.sets is None else self.sets.expanded(self.below, outputs)),
            self.group,
            dict(self._built),
            is_global,
            at,
            split is not None,
        )

    def _grouping(self, node: exp.Grouping | exp.GroupingId) -> exp.Expr:
        if self.sets is None:
            raise Refusal(f"{word(node)} is allowed only with GROUPING SETS, ROLLUP or CUBE", node)
        if isinstance(node, exp.Grouping) and len(node.expressions) != 1:
            raise Refusal("GROUPING takes one column: for several columns, write GROUPING_ID", node)
        for each in node.expressions:
            if self._groups.get(each.unnest()) not in self.sets.names:
                raise Refusal(f"{word(node)} takes columns of GROUP BY, but this column is not in GROUP BY", each)
        names = [self._groups[each.unnest()] for each in node.expressions] or list(self.sets.names)
        found = self.sets.grouping(names)
        return exp.cast(found, "INT") if isinstance(node, exp.Grouping) else found

    def _call(self, node: exp.Expr, name: str) -> str:
        asked = aggregate_call(node)
        for part in (*asked.arguments, *_ordered(asked), *([] if asked.filter is None else [asked.filter])):
            self._check_part(part, node)
        if asked.function == "listagg":
            asked = self._of_text(asked, node)
        if asked not in self._calls:
            types = tuple(self._type(argument, node) for argument in asked.arguments)
            given = asked.arguments
            if isinstance(asked.function, PythonFunction):
                given = with_types(node, asked.function, given, types)
            self._check_types(asked, types, node)
            column = self.names.claim(name) if name else self.names.fresh(stem(node))
            self._built[column] = LogicalAggregateCall(
                function=asked.function,
                arguments=tuple(self._argument(argument.unnest(), asked.filter) for argument in given),
                type=aggregate_type(asked, types, node),
                at=node,
                filter=None if asked.filter is None else self._column(asked.filter.unnest()),
                distinct=asked.distinct,
                order=tuple(self._order(each, asked.filter) for each in asked.order),
                constants=asked.constants,
                tries=asked.tries,
            )
            self._calls[asked] = column
        return self._calls[asked]

    def _check_part(self, part: exp.Expr, call: exp.Expr) -> None:
        """Refuse an expression that is not allowed inside an aggregate call."""
        for inner in calls(part):
            raise Refusal("aggregate functions cannot be nested: compute the inner one in a derived table", inner)
        for window in part.find_all(exp.Window):
            raise Refusal(
                "a window function cannot be aggregated in the same SELECT: compute it in a derived table", window
            )
        if reads(part) & self.later:
            raise Refusal("a subquery is not allowed inside an aggregate function: use a derived table", call)

    def _check_types(self, asked: ParsedCall, types: Sequence[Type], at: exp.Expr) -> None:
        """Refuse a FILTER that is not a condition, and values that the call must compare but that have no order."""
        if asked.filter is not None:
            compile_condition([asked.filter], self._types)
        for type_ in types:
            if asked.distinct and not type_.orderable:
                raise Refusal(f"DISTINCT cannot be used with type {type_.sql}: use the value's fields, or a key", at)
        for each in _ordered(asked):
            if not (type_ := self._type(each, at)).orderable:
                raise Refusal(f"values of type {type_.sql} have no order: use one of their fields, or a key", each)

    def _of_text(self, asked: ParsedCall, at: exp.Expr) -> ParsedCall:
        """Return the call with its argument cast to text. As in Spark, numbers and times are cast implicitly."""
        (argument,) = asked.arguments
        if family(self._type(argument, at)) in (None, "string", "binary", "null"):
            return asked
        return replace(asked, arguments=(exp.cast(argument.copy(), "STRING", dialect="spark"),))

    def _order(self, ordered: exp.Ordered, filter_: exp.Expr | None) -> OrderColumn:
        column = self._argument(ordered.this.unnest(), filter_)
        return OrderColumn(column, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))

    def _argument(self, node: exp.Expr, filter_: exp.Expr | None) -> str:
        """Return an argument's column. An argument that may fail is computed only for rows that satisfy the FILTER."""
        if filter_ is None or not may_fail(node):
            return self._column(node)
        guarded = exp.Case(ifs=[exp.If(this=filter_.copy(), true=node.copy())])
        return self._column(guarded, like=node)

    def _check_orderable(self, node: exp.Expr, at: exp.Expr) -> None:
        type_ = self._type(node, at)
        if not type_.orderable:
            raise Refusal(f"GROUP BY cannot use type {type_.sql}: group by the value's fields, or by a key", at)

    def _type(self, node: exp.Expr, at: exp.Expr) -> Type:
        if reads(node) & self.later:
            raise Refusal("GROUP BY cannot contain a subquery: compute it in a derived table", at)
        return type_of(node, self._types)

    def _column(self, node: exp.Expr, name: str = "", like: exp.Expr | None = None) -> str:
        """Return the column of the Project below that holds an expression.

        If `name` is empty, the column's name is derived from the expression.
        """
        if isinstance(node, exp.Column):
            return node.name
        if node not in self._computed:
            self._computed[node] = self._named(like or node, name)
        return self._computed[node]

    def _named(self, node: exp.Expr, name: str) -> str:
        return self.names.claim(name) if name else self.names.fresh(stem(node))


def _ordered(asked: ParsedCall) -> list[exp.Expr]:
    return [each.this for each in asked.order]


def without_duplicates(node: LogicalNode, at: exp.Expr) -> LogicalAggregate:
    """Return a node's distinct rows. Raises Refusal for columns that cannot be compared."""
    for name, type_ in columns(node).items():
        if not type_.orderable:
            spelled = name.rpartition(".")[2]
            raise Refusal(f"{spelled} has type {type_.sql}, which cannot be compared: select its fields, or a key", at)
    return LogicalAggregate(LogicalInput(node), tuple(columns(node)), {}, False, at)


def group_expressions(
    group: exp.Group, columns_: SelectList, resolve: Callable[[exp.Expr], exp.Expr]
) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield each group expression, resolved, together with the SQL node from which it was resolved.

    GROUP BY may contain expressions, numbers of columns in the SELECT list, and ALL. Raises Refusal.
    """
    for each in written_columns(group) if grouping_sets(group) is not None else group.expressions:
        if isinstance(each, exp.Tuple):
            raise Refusal("columns in GROUP BY cannot be in parentheses: write GROUP BY a, b", each)
        item = columns_.position(each)
        yield resolve(each) if item is None else item.expression, each
    if group.args.get("all"):
        for item in columns_.items:
            if not any(calls(item.expression)) and not item.expression.find(exp.Window):
                yield item.expression, item.at
