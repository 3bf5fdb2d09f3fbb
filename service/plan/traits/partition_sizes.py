"""Upper limits on how many rows can have the same values in given columns.

the columns contain a unique key               one row
the columns lack some columns of a unique key  one row per combination of values of the missing columns, which may be
                                               few: for BOOLEAN, or for c IN ('a', 'b') in a filter
a rank passes the first rows of a partition    as many rows as ROW_NUMBER <= n admits
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from sqlglot import exp

from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin, LogicalLookup
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalNode, LogicalPerRow, LogicalSubset
from rowkind.service.plan.logical.subset import LogicalRank
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.conjuncts import conjuncts
from rowkind.service.plan.traits.fixed_columns import told
from rowkind.service.plan.traits.unique_keys import unique_keys

_LARGEST = 4096


def has_few_rows(node: LogicalNode, key: AbstractSet[str]) -> bool:
    """Whether at most a few thousand rows can have the same values in the columns `key`."""
    return _most_rows(node, key) <= _LARGEST


def _most_rows(node: LogicalNode, key: AbstractSet[str]) -> float:
    by_key = [math.prod(_most_values(node, name) for name in unique - key) for unique in unique_keys(node)]
    return min([_ranked(node, key), *by_key])


def _ranked(node: LogicalNode, key: AbstractSet[str]) -> float:
    """Return how many rows with the same `key` a rank below the node can pass; infinity if there is no limit."""
    if isinstance(node, LogicalFilter):
        return _ranked(node.input, key)
    if isinstance(node, LogicalProject):
        return _ranked(node.input, told(node, key))
    if not isinstance(node, LogicalRank) or node.ranking.function != "row_number" or node.ranking.last is None:
        return math.inf
    here = node.ranking.last - node.ranking.first + 1 if key >= set(node.partition) else math.inf
    return min(here, _most_rows(node.input.input, key))


def _most_values(node: LogicalNode, name: str) -> float:
    """Return an upper limit on the number of different values of a column."""
    type_ = columns(node)[name]
    known = 2 + type_.nullable if types.family(type_) == "boolean" else math.inf
    return min(known, _listed(node, name))


def _listed(node: LogicalNode, name: str) -> float:
    match node:
        case LogicalFilter():
            family = types.family(columns(node)[name])
            listed = (_listed_by(each, name, family) for conjunct in node.conjuncts for each in conjuncts(conjunct))
            return min([_most_values(node.input, name), *listed])
        case LogicalProject():
            output = node.outputs[name].unnest()
            return _most_values(node.input, output.name) if isinstance(output, exp.Column) else math.inf
        case LogicalJoin() | LogicalLookup():
            sides = [side.input for side in node.sides if name in columns(side.input)]
            # A null-padded column may also be NULL.
            return 1 + _most_values(sides[0], name)
        case LogicalRank() if name in node.numbers:
            numbered = node.numbers[name] == node.ranking.function and node.ranking.last is not None
            return float(node.ranking.last or 0) if numbered else math.inf
        case LogicalAggregate() if name in node.group:
            return _most_values(node.input.input, name)
        case LogicalPerRow() | LogicalSubset() if name in columns(node.input.input):
            return _most_values(node.input.input, name)
    return math.inf


def _listed_by(condition: exp.Expr, name: str, family: types.Family | None) -> float:
    """Return how many values of a column a condition admits.

    The number is infinite unless the condition lists literals of the column's own type family.
    """
    node = condition.unnest()
    is_column = isinstance(node, exp.In | exp.EQ) and isinstance(node.this.unnest(), exp.Column)
    if not is_column or node.this.unnest().name != name:
        return math.inf
    values = node.expressions if isinstance(node, exp.In) else [node.expression]
    plain = [each.unnest() for each in values]
    text, whole = family == "string", family == "integer"
    same = all(isinstance(each, exp.Literal) and (text if each.is_string else whole) for each in plain)
    return len(plain) if plain and same else math.inf
