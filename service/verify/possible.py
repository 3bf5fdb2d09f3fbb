# ruff: noqa: S608 - every name in a statement is quoted
"""The rows that a query may have at most, whatever part of the sources counts, and however ties are decided.

    Aggregate [customer] n=COUNT(*)              SELECT DISTINCT "customer", NULL AS "n" FROM …
      Join inner o.order_id = p.order_id         SELECT * FROM … JOIN … ON …

A row of a topic that is not among these rows is certainly wrong. A value that depends on which rows count, such as a
sum, is unknown: its column is NULL here, and is not compared. A filter by an unknown value passes every row. So this
form also exists for operators whose results cannot be computed in batch, such as MATCH_RECOGNIZE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowkind.service.plan.columns import columns
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.passes.extract_equal_keys import extracted
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.python.function import PythonFunction
from rowkind.service.verify.errors import NotComparedError
from rowkind.service.verify.relations import RULES
from rowkind.service.verify.translation import Translation, clocked, unknown_value
from rowkind.service.verify.unknown import Unknown


@dataclass(frozen=True)
class PossibleRows:
    """The rows that a query may have.

    - `sql`: the statement; its columns are those of the sink, in order. `tables`: the job's tables that it reads.
    - `known`: the positions of the columns whose values are known, in order.
    - `functions`: the job's functions that must be registered.
    """

    sql: str
    tables: frozenset[str]
    known: tuple[int, ...]
    functions: tuple[PythonFunction, ...]


def possible_rows(root: LogicalNode, tables: Mapping[str, str], unknown: Mapping[str, Unknown]) -> PossibleRows:
    """Translate a plan. `tables` has DuckDB's relation for each of the job's tables, `unknown` its unknown columns.

    Raises NotComparedError if the rows cannot be limited.
    """
    made, whole = _Possible(tables, _LIMITS, unknown=unknown), extracted(root)
    try:
        last = made.visit(whole)
    except Refusal as refusal:
        raise NotComparedError(refusal.text, refusal.at) from None
    parts = ",\n".join(f"{name} AS NOT MATERIALIZED ({sql})" for name, sql in made.parts)
    return PossibleRows(
        f"WITH {parts}\nSELECT * FROM {last}",
        frozenset(made.read),
        tuple(at for at, name in enumerate(columns(whole)) if name in made.sure[id(whole)]),
        tuple(dict.fromkeys(made.functions)),
    )


@dataclass
class _Possible(Translation):
    """A translation in which some columns are unknown. `sure`: the known columns of each node, by its id."""

    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    sure: dict[int, frozenset[str]] = field(default_factory=dict)

    def below(self, node: LogicalNode) -> tuple[str, frozenset[str]]:
        """Return the table expression of an input, and its known columns."""
        return self.visit(node), self.sure[id(node)]

    def keep(self, node: LogicalNode, names: Iterable[str]) -> None:
        """Record the known columns of a node."""
        self.sure[id(node)] = frozenset(names) & columns(node).keys()

    def shown(self, node: LogicalNode, known: Iterable[str]) -> str:
        """Return the columns of a node, with NULL for those that are not known."""
        kept = frozenset(known)
        found = columns(node).items()
        names = [quoted(each) if each in kept else f"{unknown_value(type_)} AS {quoted(each)}" for each, type_ in found]
        return ", ".join(names) or "NULL AS nothing"


def _is_known(expression: Any, known: frozenset[str]) -> bool:
    return reads(expression) <= known and not clocked(expression)


def _scan(made: _Possible, node: LogicalScan) -> str:
    unknown = made.unknown.get(node.source.table, {})
    made.keep(node, columns(node).keys() - {node.name(name) for name in unknown})
    return RULES[LogicalScan](made, node)


def _filter(made: _Possible, node: LogicalFilter) -> str:
    below, known = made.below(node.input)
    made.keep(node, known)
    kept = [each for each in node.conjuncts if _is_known(each, known)]
    return f"SELECT * FROM {below} WHERE {made.condition(kept, columns(node.input))}"


def _project(made: _Possible, node: LogicalProject) -> str:
    below, known = made.below(node.input)
    types, shown, kept = columns(node.input), [], []
    for name, type_ in columns(node).items():
        value = unknown_value(type_)
        if _is_known(node.outputs[name], known):
            value = made.value(node.outputs[name], types)
            kept.append(name)
        shown.append(f"{value} AS {quoted(name)}")
    made.keep(node, kept)
    return f"SELECT {', '.join(shown) or 'NULL AS nothing'} FROM {below}"


def _union(made: _Possible, node: LogicalUnion) -> str:
    for each in node.inputs:
        made.visit(each)
    made.keep(node, frozenset.intersection(*(made.sure[id(each)] for each in node.inputs)))
    return RULES[LogicalUnion](made, node)


def _expand(made: _Possible, node: LogicalExpand) -> str:
    _, known = made.below(node.input)
    if not all(_is_known(each, known) for each in (node.array, *node.condition)):
        raise NotComparedError("the elements of an array with unknown values", node.at)
    made.keep(node, known | columns(node).keys() - columns(node.input).keys())
    return RULES[LogicalExpand](made, node)


def _join(made: _Possible, node: LogicalJoin) -> str:
    (left, own), (right, other) = made.below(node.left.input), made.below(node.right.input)
    keyed = all(_is_known(key.left, own) and _is_known(key.right, other) for key in node.keys)
    if node.keeps_left:
        made.keep(node, own)
        rows = f"SELECT {made.shown(node, own)} FROM {left}"
        if node.kind != "semi" or not keyed or not all(_is_known(each, own | other) for each in node.condition):
            return rows
        return RULES[LogicalJoin](made, node)
    if not keyed:
        raise NotComparedError("a join by unknown values", node.at)
    made.keep(node, own | other)
    types = {**columns(node.left.input), **columns(node.right.input)}
    kept = [each for each in node.condition if _is_known(each, own | other)]
    on = made.equal(node.keys, columns(node.left.input), columns(node.right.input))
    on += [made.condition(kept, types)] if kept else []
    every = [f"SELECT * FROM {left} JOIN {right} ON {' AND '.join(on) or 'TRUE'}"]
    # Any row of a preserved side may be null-padded.
    every += [f"SELECT * FROM {left}"] if node.pads_left else []
    every += [f"SELECT * FROM {right}"] if node.pads_right else []
    return " UNION ALL BY NAME ".join(every)


def _lookup(made: _Possible, node: LogicalLookup) -> str:
    below, known = made.below(node.left.input)
    made.keep(node, known)
    return f"SELECT {made.shown(node, known)} FROM {below}"


def _aggregate(made: _Possible, node: LogicalAggregate) -> str:
    below, known = made.below(node.input.input)
    kept = known & frozenset(node.group)
    made.keep(node, kept)
    if node.is_global and not node.group:
        return f"SELECT {made.shown(node, ())}"
    return f"SELECT DISTINCT {made.shown(node, kept)} FROM {below}"


def _match(made: _Possible, node: LogicalMatch) -> str:
    below, known = made.below(node.input.input)
    made.keep(node, known & frozenset(node.carried))
    return f"SELECT {made.shown(node, made.sure[id(node)])} FROM {below}"


def _through(made: _Possible, node: Any) -> str:
    """Translate a node that passes rows, or adds columns, which are unknown."""
    source = node.input.input if not isinstance(node, LogicalWindow) else node.input
    below, known = made.below(source)
    made.keep(node, known & columns(source).keys())
    return f"SELECT {made.shown(node, columns(source))} FROM {below}"


_LIMITS: Mapping[type[LogicalNode], Callable[[Any, Any], str]] = {
    **dict.fromkeys(RULES, _through),
    LogicalScan: _scan,
    LogicalFilter: _filter,
    LogicalProject: _project,
    LogicalUnion: _union,
    LogicalExpand: _expand,
    LogicalJoin: _join,
    LogicalLookup: _lookup,
    LogicalAggregate: _aggregate,
    LogicalMatch: _match,
}
