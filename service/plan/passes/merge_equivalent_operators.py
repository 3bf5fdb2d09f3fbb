"""Merge operators that differ only in which columns are read: one operator keeps the union of the columns.

    SELECT … FROM (SELECT id, name FROM customers) a … JOIN (SELECT id, city FROM customers) b ON …

The two Normalizes of the table, one with names and one with cities, become one Normalize with both columns. Then the
joins above them may be merged as well, and so on. Two aggregates with the same group columns become one aggregate with
the calls of both. The physical graph has one operator for all nodes that compute the same result
(`service.physical.graph`), with a calc at its output for each consumer. This pass makes nodes compute the same result,
so that they become one operator.

Merging saves the state of all operators but one, provided that the merged operator stores no more rows than each of
them did. This is the case if a key or a row digest distinguishes the rows of each operator, or if one of the operators
already carries all of the columns. Otherwise, rows that are equal in the columns of one operator, and are stored once
with a count, would become different rows. A view that is used several times is left unchanged, because other queries
share it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode, LogicalUnary
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.traits.canonical_form import call_meant, canonical_form, meant
from rowkind.service.plan.traits.changelog_modes import bare_scan
from rowkind.service.plan.traits.unique_keys import unique_keys
from rowkind.service.plan.tree import inputs, sides, with_inputs

_Operator = LogicalNormalize | LogicalJoin | LogicalRank | LogicalAggregate
_Column = tuple[str, exp.Expr]
"""A column's name in the operator where it was found, and the column's meaning."""
_Call = tuple[str, LogicalAggregateCall]
"""A call's name in the aggregate where it was found, and the call with its columns replaced by their meanings."""


@dataclass(frozen=True)
class _United:
    """The union of the columns and calls of all operators with the same canonical form.

    `sides` contains the columns of each side, by meaning; `calls` contains the aggregate calls, by meaning.
    """

    sides: tuple[Mapping[str, _Column], ...]
    calls: Mapping[str, _Call]


def merge_equivalent_operators(query: Query) -> Query:
    """Make operators equal if they differ only in which columns are read, and if that saves state.

    >>> example(merge_equivalent_operators, '''
    ...     SELECT a.name, b.country FROM (SELECT customer_id, name FROM customers) a
    ...     JOIN (SELECT customer_id, country FROM customers) b ON a.name = b.country''')
    Join inner keys=[a.name = b.country]
      Project a.customer_id: a.customers.customer_id, a.name: a.customers.name
        Normalize key=[a.customers.customer_id] input.carried=[a.customers.customer_id, a.customers.name]
          Scan customers a.customers used=[customer_id, name]
      Project b.customer_id: b.customers.customer_id, b.country: b.customers.country
        Normalize key=[b.customers.customer_id] input.carried=[b.customers.customer_id, b.customers.country]
          Scan customers b.customers used=[customer_id, country]
    becomes
    Join inner keys=[a.name = b.country]
      Project a.customer_id: a.customers.customer_id, a.name: a.customers.name
        Normalize key=[a.customers.customer_id] input.carried=[a.customers.customer_id, a.customers.name,
            a.customers.country]
          Scan customers a.customers used=[customer_id, name, country]
      Project b.customer_id: b.customers.customer_id, b.country: b.customers.country
        Normalize key=[b.customers.customer_id] input.carried=[b.customers.customer_id, b.customers.name,
            b.customers.country]
          Scan customers b.customers used=[customer_id, name, country]
    """
    united: dict[str, _United] = {}
    numbers: dict[int, int] = {}
    for text, nodes in _alike(query.root).items():
        if len(nodes) == 1 or not all(map(_is_plain, nodes)):
            continue
        both = _union(nodes)
        if _pays(nodes, both) and all(_has(node, both, united) for node in nodes):
            united[text] = both
            numbers |= {id(node): number for number, node in enumerate(nodes, 1)}

    def change(node: LogicalNode) -> LogicalNode:
        if isinstance(node, LogicalProject) and node.stands:
            return node
        own = united.get(canonical_form(node).text) if isinstance(node, _Operator) else None
        below = with_inputs(node, change)
        return below if own is None else _widened(below, own, f"#{numbers[id(node)]}")

    return replace(query, root=change(query.root)) if united else query


def _alike(root: LogicalNode) -> Mapping[str, Sequence[_Operator]]:
    """Return the plan's operators, grouped by their canonical forms. Inputs come before the operators above them."""
    found: dict[str, dict[int, _Operator]] = defaultdict(dict)
    for node in _open(root):
        if isinstance(node, _Operator):
            found[canonical_form(node).text][id(node)] = node
    return {text: list(nodes.values()) for text, nodes in found.items()}


def _is_plain(node: _Operator) -> bool:
    """Whether no two columns, and no two calls, of an operator have the same meaning."""
    plain = all(len(_carried(side)) == len(side.carried) for side in sides(node))
    return plain and (not isinstance(node, LogicalAggregate) or len(_calls(node)) == len(node.calls))


def _open(node: LogicalNode) -> Iterator[LogicalNode]:
    """Yield the nodes of the plan, except those inside views that are planned separately."""
    if not (isinstance(node, LogicalProject) and node.stands):
        for each in inputs(node):
            yield from _open(each)
    yield node


def _union(nodes: Sequence[_Operator]) -> _United:
    columns = [[_carried(side) for side in sides(node)] for node in nodes]
    calls: dict[str, _Call] = {}
    for node in nodes:
        if isinstance(node, LogicalAggregate):
            calls |= {text: call for text, call in _calls(node).items() if text not in calls}
    return _United(tuple(_first(each) for each in zip(*columns, strict=True)), calls)


def _first(columns: Sequence[Mapping[str, _Column]]) -> Mapping[str, _Column]:
    found: dict[str, _Column] = {}
    for each in columns:
        found |= {text: column for text, column in each.items() if text not in found}
    return found


def _carried(side: LogicalInput) -> Mapping[str, _Column]:
    columns = canonical_form(side.input).columns
    return {meant(columns[name]): (name, columns[name]) for name in side.carried}


def _calls(node: LogicalAggregate) -> Mapping[str, _Call]:
    columns = canonical_form(node.input.input).columns
    texts = {name: meant(columns[name]) for name in node.input.carried}
    return {call_meant(call, texts): (name, _over(call, texts)) for name, call in node.calls.items()}


def _over(call: LogicalAggregateCall, names: Mapping[str, str]) -> LogicalAggregateCall:
    """Return the call with its columns renamed."""
    order = tuple(each if each.column is None else replace(each, column=names[each.column]) for each in call.order)
    filter_ = None if call.filter is None else names[call.filter]
    return replace(call, arguments=tuple(names[each] for each in call.arguments), order=order, filter=filter_)


def _pays(nodes: Sequence[_Operator], both: _United) -> bool:
    """Whether the operators differ, and the merged operator stores no more rows than each of them."""
    aggregates = [node for node in nodes if isinstance(node, LogicalAggregate)]
    if aggregates:
        return any(_calls(node).keys() != both.calls.keys() for node in aggregates)
    different = False
    for place, wanted in enumerate(both.sides):
        each = [sides(node)[place] for node in nodes]
        own = [tuple(_carried(side)) for side in each]
        different |= any(texts != tuple(wanted) for texts in own)
        if not all(map(_tells_rows_apart, each)) and all(len(texts) < len(wanted) for texts in own):
            return False
    return different


def _tells_rows_apart(side: LogicalInput) -> bool:
    """Whether an input's layout, a key that it carries, or row digests distinguish all of its rows."""
    scan = bare_scan(side.input)
    digested = scan is not None and not scan.source.primary_key and scan.source.may_retract_unsent
    keyed = side.layout != "multiset" or any(key.issubset(side.carried) for key in unique_keys(side.input))
    return digested or keyed


def _has(node: _Operator, both: _United, united: Mapping[str, _United]) -> bool:
    """Whether an operator's inputs can supply all columns of `both`, if the operators in `united` are merged."""
    return all(
        _reaches(side.input, meaning, united)
        for side, wanted in zip(sides(node), both.sides, strict=True)
        for _, meaning in wanted.values()
    )


def _reaches(node: LogicalNode, meaning: exp.Expr, united: Mapping[str, _United]) -> bool:
    if isinstance(node, LogicalFilter):
        return _reaches(node.input, meaning, united)
    if isinstance(node, LogicalProject) and not node.stands:
        return all(_reaches(node.input, resolved(name), united) for name in reads(meaning))
    own = canonical_form(node)
    return isinstance(node, LogicalScan) or own.text in united or meant(meaning) in map(meant, own.columns.values())


def _widened(node: LogicalNode, both: _United, suffix: str) -> LogicalNode:
    """Return the operator with all columns and calls of `both`. The names of new ones end with `suffix`."""
    if isinstance(node, LogicalJoin):
        left, right = (_side(side, wanted, suffix) for side, wanted in zip(node.sides, both.sides, strict=True))
        return replace(node, left=left, right=right)
    assert isinstance(node, LogicalUnary), "only joins and unary operators are merged"
    side = _side(node.input, both.sides[0], suffix)
    if not isinstance(node, LogicalAggregate):
        return replace(node, input=side)
    own = {text: name for text, (name, _) in _calls(node).items()}
    names = {text: name for text, (name, _) in _carried(side).items()}
    calls = {own.get(text, name + suffix): _over(call, names) for text, (name, call) in both.calls.items()}
    return replace(node, input=side, calls=calls)


def _side(side: LogicalInput, wanted: Mapping[str, _Column], suffix: str) -> LogicalInput:
    node, carried = side.input, {text: name for text, (name, _) in _carried(side).items()}
    for text, (name, meaning) in wanted.items():
        if text not in carried:
            node, carried[text] = _with(node, name + suffix, meaning)
    return replace(side, input=node, carried=tuple(carried[text] for text in wanted))


def _with(node: LogicalNode, name: str, meaning: exp.Expr) -> tuple[LogicalNode, str]:
    """Return the node with a column of the given meaning, and the column's name, which is `name` if it is new."""
    known = {meant(each): own for own, each in canonical_form(node).columns.items()}
    match node:
        case LogicalScan() if meant(meaning) == ARRIVAL:
            return replace(node, numbered=True), node.name(ARRIVAL)
        case LogicalScan():
            own = known[meant(meaning)]
            used = [each for each in node.source.declared.names if each in node.used or node.name(each) == own]
            return replace(node, used=tuple(used)), own
        case LogicalFilter():
            below, own = _with(node.input, name, meaning)
            return replace(node, input=below), own
        case LogicalProject(stands=False) if meant(meaning) not in known:
            below, names = node.input, dict[str, exp.Expr]()
            for text in sorted(reads(meaning)):
                below, own = _with(below, text + name, resolved(text))
                names[text] = resolved(own)
            return replace(node, input=below, outputs={**node.outputs, name: substitute(meaning, names)}), name
        case _:
            return node, known[meant(meaning)]
