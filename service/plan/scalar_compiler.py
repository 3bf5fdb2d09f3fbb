"""One walk over a scalar expression: each kind of node has a rule, and what has none is refused by name.

The rules live in `scalar_conditions` and `scalar_values`. The operands of every operation are cast to the type that
Spark casts them to, so that nothing is left to DuckDB's own typing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from avro.schema import Type
from service.plan import types
from service.plan.errors import Refusal, word
from service.plan.typed import Typed, constant, converted, quoted
from service.plan.types import BOOLEAN, INT, NULL, STRING, common, family, with_null

Columns = Mapping[str, tuple[str, Type]]
"""What each column of the plan is called in the input of a calc, and its type there."""

Rule = tuple[Callable[["Compiler", Any], Typed], tuple[str, ...]]
"""How a kind of node is written in DuckDB, and the parts it may have; another part is a form that is not known."""


class Compiler:
    """Compiles expressions over `columns` by `rules`."""

    def __init__(self, columns: Columns, rules: Mapping[type[exp.Expr], Rule]) -> None:
        self.columns = columns
        self._rules = rules

    def compile(self, node: exp.Expr) -> Typed:
        """The node in DuckDB SQL. Raises Refusal."""
        if isinstance(node, exp.Paren):
            return self.compile(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        rule = self._rules.get(type(node))
        if rule is None:
            raise Refusal(f"{_called(node)} is not supported yet", node)
        write, parts = rule
        for name, value in node.args.items():
            if value and name not in parts and name not in _HARMLESS:
                raise Refusal(f"this form of {_called(node)} is not supported yet", node)
        return write(self, node)

    def condition(self, node: exp.Expr) -> Typed:
        """The node, which must be a condition. Raises Refusal."""
        typed = self.compile(node)
        if family(typed.type) not in ("boolean", "null"):
            raise Refusal(f"expected a condition, but this is {typed.type.sql}: compare it with something", node)
        return typed if family(typed.type) == "boolean" else converted(typed, BOOLEAN)

    def string(self, node: exp.Expr) -> Typed:
        """The node, which must be text. Raises Refusal."""
        value = self.compile(node)
        if family(value.type) not in ("string", "null"):
            raise Refusal(f"expected text, but this is {value.type.sql}: write CAST(… AS STRING)", node)
        return value if family(value.type) == "string" else converted(value, STRING)

    def numbers(self, *nodes: exp.Expr) -> list[Typed]:
        """The nodes, which must be numbers. What is not known at all is refused before what is no number."""
        values = [self.compile(node) for node in nodes]
        return [self._number(node, value) for node, value in zip(nodes, values, strict=True)]

    @staticmethod
    def _number(node: exp.Expr, value: Typed) -> Typed:
        if family(value.type) == "null":
            return converted(value, INT)
        if family(value.type) not in ("integer", "decimal", "float"):
            raise Refusal(f"expected a number, but this is {value.type.sql}", node)
        return value

    def united(self, node: exp.Expr, parts: Sequence[exp.Expr]) -> tuple[list[Typed], Type]:
        """All parts in the type that Spark takes for all of them; text written out adapts to dates and times."""
        values = [self.compile(part) for part in parts]
        firm = [value for value in values if value.literal is None] or values
        type_ = firm[0].type.required if family(firm[0].type) != "null" else NULL
        for value in firm[1:]:
            united = common(type_, value.type)
            if united is None:
                raise Refusal(
                    f"{type_.sql} and {value.type.sql} do not go together here: write a CAST on one of them", node
                )
            type_ = united
        if family(type_) == "null" and len(firm) < len(values):
            type_ = STRING
        adapted = []
        for part, value in zip(parts, values, strict=True):
            if value.literal is not None and family(type_) not in ("string", "null"):
                adapted.append(Typed(constant(part, value.literal, type_), type_))
            else:
                adapted.append(converted(value, type_))
        return adapted, type_

    def _column(self, node: exp.Column) -> Typed:
        name, type_ = self.columns[node.name]
        if family(type_) is None:
            raise Refusal(f"a {type_.sql} can be selected as it is, but not be computed with or compared yet", node)
        return Typed(quoted(name), with_null(types.canonical(type_), type_.nullable))


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
    exp.Div: "division (/)",
    exp.IntDiv: "division (DIV)",
    exp.Mod: "the remainder (%)",
    exp.Interval: "an INTERVAL",
    exp.Dot: "a field of a STRUCT",
    exp.Bracket: "an element of an ARRAY or MAP",
    exp.Star: "*",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
}
_HARMLESS = ("safe", "coalesce", "typed", "requires_string", "is_string", "quoted")
