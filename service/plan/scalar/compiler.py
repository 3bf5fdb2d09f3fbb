"""Compiles a scalar expression in one traversal. Each kind of node has a rule; a node without a rule is refused.

The rules are in the other modules of this package (`scalar.scalars` collects them). The operands of every operation are
cast to the same type as in Spark, so that no result depends on DuckDB's own type rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.typed import Typed, converted, opened, quoted, unite
from rowkind.service.plan.scalar.types import BOOLEAN, INT, STRING, family, with_null

Columns = Mapping[str, tuple[str, Type]]
"""Maps each of the plan's columns to its name and type in a calc's input."""

_LONGEST = 200_000
"""The maximum length of one expression's DuckDB SQL, in characters."""

Rule = tuple[Callable[["Compiler", Any], Typed], tuple[str, ...]]
"""A function that compiles one kind of node to DuckDB SQL, and the names of the parts that this kind of node may
contain. A node that contains another part is refused.
"""


class Compiler:
    """Compiles expressions over the given `columns`, using one of the `rules` for each kind of node."""

    def __init__(
        self, columns: Columns, rules: Mapping[type[exp.Expr], Rule], variables: Mapping[str, Typed] | None = None
    ) -> None:
        self.columns = columns
        self._rules = rules
        self._variables = variables or {}

    def function(self, node: exp.Lambda, arguments: Sequence[Type]) -> tuple[str, Typed]:
        """Compile a lambda for arguments of the given types; return its parameters and its body in DuckDB SQL.

        The lambda may have fewer parameters than there are arguments. Raises Refusal.
        """
        names = [parameter.name for parameter in node.expressions]
        if len(names) > len(arguments) or len({name.lower() for name in names}) < len(names):
            raise Refusal(
                "a lambda's parameters must have different names, and there can be at most "
                f"{len(arguments)} of them here, not {len(names)}",
                node,
            )
        taken_names = [name for name, _ in self.columns.values()] + [value.sql for value in self._variables.values()]
        fresh = variables(*taken_names, count=len(arguments))
        given = {name.lower(): Typed(sql, type_) for name, sql, type_ in zip(names, fresh, arguments, strict=False)}
        body = Compiler(self.columns, self._rules, {**self._variables, **given}).whole(node.this)
        return ", ".join(fresh[: len(names)]), body

    def variable(self, node: exp.Identifier) -> Typed:
        """Return the value of a lambda parameter. Raises Refusal."""
        found = self._variables.get(node.name.lower())
        if found is None:
            raise Refusal(f"there is no lambda parameter {node.name} here", node)
        return found

    def compile(self, node: exp.Expr) -> Typed:
        """Compile a node. Raises Refusal if expressions cannot use its type."""
        value = self.value(node)
        if family(value.type) is None:
            raise Refusal(
                f"values of type {value.type.sql} cannot be compared or used in computations: they can only be "
                "selected unchanged",
                node,
            )
        return value

    def whole(self, node: exp.Expr) -> Typed:
        """Compile a node like `compile`, but also accept an ARRAY, MAP or STRUCT of usable types. Raises Refusal."""
        value = self.value(node)
        if not types.computable(value.type):
            raise Refusal(
                f"values of type {value.type.sql} cannot be compared or used in computations: they can only be "
                "selected unchanged",
                node,
            )
        return opened(value)

    def value(self, node: exp.Expr) -> Typed:
        """Compile a node of any type, including STRUCT, ARRAY and MAP. Raises Refusal."""
        if isinstance(node, exp.Paren):
            return self.value(node.this)
        if isinstance(node, exp.Column):
            name, type_ = self.columns[node.name]
            if any(inner.logical == "decimal" and family(inner) is None for inner in type_.walk()):
                raise Refusal(
                    f"values of type {type_.sql} cannot be compared or used in computations: they can only be "
                    "selected unchanged",
                    node,
                )
            return taken(quoted(name), type_)
        rule = self._rules.get(type(node))
        if rule is None:
            raise Refusal(f"{_called(node)} is not supported", node)
        write, parts = rule
        for name, value in node.args.items():
            if value and name not in parts and name not in _HARMLESS:
                raise Refusal(f"this form of {_called(node)} is not supported", node)
        found = write(self, node)
        if len(found.sql) > _LONGEST:
            # Some functions repeat an argument in their SQL, so the SQL of nested calls can grow exponentially.
            raise Refusal("functions are nested too deeply here: compute the inner ones in a derived table", node)
        return found

    def condition(self, node: exp.Expr) -> Typed:
        """Compile a node that must be a condition. Raises Refusal."""
        typed = self.compile(node)
        if family(typed.type) not in ("boolean", "null"):
            raise Refusal(f"expected a condition, got {typed.type.sql}: write a comparison", node)
        return typed if family(typed.type) == "boolean" else converted(typed, BOOLEAN)

    def string(self, node: exp.Expr) -> Typed:
        """Compile a node that must be text. Raises Refusal."""
        value = self.compile(node)
        if family(value.type) not in ("string", "null"):
            raise Refusal(f"expected text, got {value.type.sql}: write CAST(… AS STRING)", node)
        return value if family(value.type) == "string" else converted(value, STRING)

    def numbers(self, *nodes: exp.Expr) -> list[Typed]:
        """Compile nodes that must be numbers. Raises Refusal.

        All nodes are compiled before any type is checked, so that an unsupported expression is reported first.
        """
        values = [self.compile(node) for node in nodes]
        return [self._number(node, value) for node, value in zip(nodes, values, strict=True)]

    @staticmethod
    def _number(node: exp.Expr, value: Typed) -> Typed:
        if family(value.type) == "null":
            return converted(value, INT)
        if family(value.type) not in ("integer", "decimal", "float"):
            raise Refusal(f"expected a number, got {value.type.sql}: use a CAST or another column", node)
        return value

    def united(self, node: exp.Expr, parts: Sequence[exp.Expr]) -> tuple[list[Typed], Type]:
        """Compile all parts, cast them to Spark's common type, and return the cast values and that type.

        A string literal is converted to the type of the other parts. Raises Refusal.
        """
        return unite([self.whole(part) for part in parts], node)


def taken(sql: str, type_: Type) -> Typed:
    """Return SQL that reads a column and converts its value to the type that expressions use."""
    found = family(type_)
    if found is None:
        return Typed(sql, type_)
    if type_.logical == "local-timestamp-millis":
        sql = f"CAST({sql} AS TIMESTAMP)"
    return Typed(sql, with_null(types.canonical(type_), type_.nullable))


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.AggFunc):
        return f"the aggregate function {word(node)}"
    if isinstance(node, exp.Window):
        return "a window function (OVER)"
    if isinstance(node, exp.Subquery | exp.Exists | exp.Query):
        return "a subquery in an expression"
    if isinstance(node, exp.Func):
        return f"the function {word(node)}"
    return _NAMES.get(type(node), f"this kind of expression ({type(node).__name__})")


_NAMES: Mapping[type[exp.Expr], str] = {
    exp.Interval: "an INTERVAL that is not added to a date or timestamp",
    exp.Star: "*",
    exp.AtTimeZone: "AT TIME ZONE (write FROM_UTC_TIMESTAMP or TO_UTC_TIMESTAMP)",
    exp.Lambda: "a lambda (->)",
    exp.Placeholder: "a parameter",
    exp.Tuple: "a row of values outside a comparison (write STRUCT for one value with several fields)",
}
_HARMLESS = ("safe", "coalesce", "typed", "requires_string", "is_string", "quoted", "requires_arg_order")
