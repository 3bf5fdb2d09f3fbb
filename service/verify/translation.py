"""The state of a translation of a plan to DuckDB, and its scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowkind.avro.schema import Type
from rowkind.service.plan.calls import EqualKey
from rowkind.service.plan.columns import by_name
from rowkind.service.plan.logical.node import LogicalNode, Types
from rowkind.service.plan.scalar.clock_conditions import is_now, is_today, reads_clock
from rowkind.service.plan.scalar.conditions import may_fail
from rowkind.service.plan.scalar.scalars import compile_condition, compile_scalar, type_of
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.scalar.types import computable, duckdb, family
from rowkind.service.python.function import PythonFunction
from rowkind.service.verify.errors import NotComparedError

OF_CLOCK = "the result depends on the current time"


@dataclass
class Translation:
    """The table expressions of the nodes translated so far. `rules`: how a node of each type is translated."""

    tables: Mapping[str, str]
    rules: Mapping[type[LogicalNode], Callable[[Any, Any], str]]
    certain: bool = False
    seed: int = 0
    parts: list[tuple[str, str]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    ties: list[str] = field(default_factory=list)
    functions: list[PythonFunction] = field(default_factory=list)
    known: dict[int, tuple[LogicalNode, str]] = field(default_factory=dict)

    def visit(self, node: LogicalNode) -> str:
        """Return the name of the table expression with a node's rows."""
        if id(node) not in self.known:
            rule = self.rules.get(type(node))
            if rule is None:
                raise NotComparedError(f"{type(node).__name__.removeprefix('Logical')} has no form in DuckDB")
            sql = rule(self, node)
            name = f"n{len(self.parts) + 1}"
            self.parts.append((name, sql))
            self.known[id(node)] = node, name
        return self.known[id(node)][1]

    def any_order(self, types: Types) -> str:
        """Return a term that orders different rows in some fixed way."""
        own = ", ".join(f"c{at} := {quoted(name)}" for at, name in enumerate(types))
        return f"hash(struct_pack({own}), {self.seed})"

    def value(self, node: Any, types: Types, to: Type | None = None, *, cast: bool = True) -> str:
        """Return a scalar expression in DuckDB. If `cast` is set, cast it to its type in the plan, or to `to`."""
        if clocked(node):
            # The value is unknown (`unknown_columns`).
            return unknown_value(type_of(node, by_name(types)) if to is None else to)
        compiled = compile_scalar(node, by_name(types))
        self.functions += compiled.functions
        type_ = compiled.type if to is None else to
        if not cast or (compiled.column is not None and to is None) or not computable(type_) or family(type_) == "null":
            return compiled.sql
        return f"CAST({compiled.sql} AS {duckdb(type_)})"

    def condition(self, conjuncts: Sequence[Any], types: Types) -> str:
        """Return a condition in DuckDB. TRUE if there are no conjuncts."""
        for each in conjuncts:
            if clocked(each):
                raise NotComparedError(OF_CLOCK, each)
        named = by_name(types)
        plain = [[each] for each in conjuncts if not may_fail(each)]
        # DuckDB joins by equalities only if they are conjuncts. A conjunct that may fail is guarded by those before it.
        whole = [] if len(plain) == len(conjuncts) else [conjuncts]
        compiled = [found for each in (*plain, *whole) if (found := compile_condition(each, named)) is not None]
        self.functions += [function for each in compiled for function in each.functions]
        return " AND ".join(f"({each.sql})" for each in compiled) or "TRUE"

    def equal(self, keys: Sequence[EqualKey], left: Types, right: Types) -> list[str]:
        """Return the equalities of a join."""
        found = []
        for key in keys:
            one, other = self.value(key.left, left, key.type), self.value(key.right, right, key.type)
            found.append(f"{one} {'IS NOT DISTINCT FROM' if key.null_safe else '='} {other}")
        return found


def clocked(node: Any) -> bool:
    """Return whether an expression depends on the current time."""
    return any(is_now(each) or is_today(each) or reads_clock(each) for each in node.walk())


def unknown_value(type_: Type) -> str:
    """Return NULL of a type."""
    return f"CAST(NULL AS {duckdb(type_)})" if computable(type_) and family(type_) != "null" else "NULL"
