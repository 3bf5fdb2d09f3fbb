"""Scalar expressions: typed as Spark SQL types them, and written in DuckDB SQL so that they mean the same there.

Only what is known to mean the same is let through; everything else is refused by name. The operands of every operation
are cast to the type that Spark casts them to, so that nothing is left to DuckDB's own typing. Columns are already
resolved: an `exp.Column` without a table, named as in the plan (`resolved`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from avro.errors import SchemaError
from avro.schema import Type
from service.plan import types
from service.plan.casts import cast, constant
from service.plan.errors import Refusal
from service.plan.physical import Expression
from service.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, common, family, with_null

Columns = Mapping[str, tuple[str, Type]]
"""What each column of the plan is called in the input of a calc, and its type there."""


@dataclass(frozen=True)
class Typed:
    """DuckDB SQL and the type of its value. `literal` is the text of a string literal."""

    sql: str
    type: Type
    literal: str | None = None


def compile_scalar(node: exp.Expr, columns: Columns) -> Expression:
    """A scalar expression over `columns`. Raises Refusal."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        name, type_ = columns[node.name]
        return Expression(_quoted(name), type_, (name,), show(node), name)
    typed = _Compiler(columns).compile(node)
    read = dict.fromkeys(columns[column.name][0] for column in node.find_all(exp.Column))
    return Expression(typed.sql, typed.type, tuple(read), show(node))


def compile_cast(node: exp.Expr, columns: Columns, to: Type) -> Expression:
    """The same, cast to a type it converts to."""
    plain = compile_scalar(node, columns)
    if plain.type.required == to.required:
        return plain
    typed = Typed(plain.sql, plain.type)
    return Expression(
        _converted(typed, to).sql, with_null(to, plain.type.nullable), plain.columns, f"CAST({plain.text} AS {to.sql})"
    )


def compile_condition(conjuncts: Sequence[exp.Expr], columns: Columns) -> Expression | None:
    """All conjuncts as one condition, None for none. Raises Refusal where one is no condition."""
    if not conjuncts:
        return None
    compiler = _Compiler(columns)
    typed = [compiler.condition(conjunct) for conjunct in conjuncts]
    read = dict.fromkeys(columns[column.name][0] for each in conjuncts for column in each.find_all(exp.Column))
    return Expression(
        " AND ".join(each.sql for each in typed),
        with_null(BOOLEAN, any(each.type.nullable for each in typed)),
        tuple(read),
        " AND ".join(_operand(each) for each in conjuncts),
    )


def resolved(name: str, like: exp.Expr | None = None) -> exp.Column:
    """A column of the plan by its name, at the place in the SQL where `like` stands."""
    identifier = exp.Identifier(this=name, quoted=True)
    if like is not None:
        metas = [each.meta for each in like.walk() if "start" in each.meta]
        if metas:
            identifier.meta.update(metas[0])
            identifier.meta["start"] = min(meta["start"] for meta in metas)
            identifier.meta["end"] = max(meta["end"] for meta in metas)
    return exp.Column(this=identifier)


def show(node: exp.Expr) -> str:
    """An expression in Spark SQL as a user would write it."""

    def plain(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column):
            return exp.column(*reversed(each.name.split(".")[-3:]))
        return each

    return str(node.transform(plain).sql("spark", comments=False)).replace("TRY_CAST(", "CAST(")


def _operand(node: exp.Expr) -> str:
    return f"({show(node)})" if isinstance(node, exp.Or) else show(node)


class _Compiler:
    """One walk over an expression."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def compile(self, node: exp.Expr) -> Typed:
        rule = _RULES.get(type(node))
        if rule is None:
            raise Refusal(f"{_called(node)} is not supported yet", node)
        method, arguments = rule
        for name, value in node.args.items():
            if value and name not in arguments and name not in _HARMLESS:
                raise Refusal(f"this form of {_called(node)} is not supported yet", node)
        typed: Typed = method(self, node)
        return typed

    def condition(self, node: exp.Expr) -> Typed:
        typed = self.compile(node)
        if family(typed.type) not in ("boolean", "null"):
            raise Refusal(f"expected a condition, but this is {typed.type.sql}: compare it with something", node)
        return typed if family(typed.type) == "boolean" else _converted(typed, BOOLEAN)

    def paren(self, node: exp.Paren) -> Typed:
        return self.compile(node.this)

    def column(self, node: exp.Column) -> Typed:
        name, type_ = self._columns[node.name]
        if family(type_) is None:
            raise Refusal(f"a {type_.sql} can be selected as it is, but not be computed with or compared yet", node)
        return Typed(_quoted(name), with_null(types.canonical(type_), type_.nullable))

    def literal(self, node: exp.Literal) -> Typed:
        text = str(node.this)
        if node.is_string:
            return Typed(_text(text), STRING, text)
        try:
            type_ = _number_type(text)
        except ValueError:
            raise Refusal(f"the number {text} is not understood", node) from None
        if type_ is None:
            raise Refusal("a number of more than 38 digits cannot be computed with", node)
        return Typed(f"CAST({text} AS {types.duckdb(type_)})", type_)

    def boolean(self, node: exp.Boolean) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", BOOLEAN)

    def null(self, _: exp.Null) -> Typed:
        return Typed("NULL", NULL)

    def both(self, node: exp.Connector) -> Typed:
        left, right = self.condition(node.left), self.condition(node.right)
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Typed(f"({left.sql} {word} {right.sql})", _nullable(BOOLEAN, left, right))

    def negated(self, node: exp.Not) -> Typed:
        inner = self.condition(node.this)
        return Typed(f"(NOT {inner.sql})", inner.type)

    def compare(self, node: exp.Binary) -> Typed:
        left, right, _ = self.pair(node, node.left, node.right)
        return Typed(f"({left.sql} {_COMPARISONS[type(node)]} {right.sql})", _nullable(BOOLEAN, left, right))

    def distinct_from(self, node: exp.Binary) -> Typed:
        left, right, _ = self.pair(node, node.left, node.right)
        word = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
        return Typed(f"({left.sql} {word} {right.sql})", BOOLEAN)

    def is_(self, node: exp.Is) -> Typed:
        if isinstance(node.expression, exp.Null):
            inner = node.this.unnest()
            if isinstance(inner, exp.Column):
                # Whether a column is NULL can be said of every type; DuckDB is shown the column all the same.
                name, _type = self._columns[inner.name]
                return Typed(f"({_quoted(name)} IS NULL)", BOOLEAN)
            return Typed(f"({self.compile(inner).sql} IS NULL)", BOOLEAN)
        if isinstance(node.expression, exp.Boolean):
            word = "TRUE" if node.expression.this else "FALSE"
            return Typed(f"({self.condition(node.this).sql} IS NOT DISTINCT FROM {word})", BOOLEAN)
        raise Refusal("IS takes NULL, TRUE or FALSE", node)

    def in_(self, node: exp.In) -> Typed:
        if node.args.get("query"):
            raise Refusal("IN with a subquery is not supported yet: write it as a JOIN", node)
        values, _ = self.united(node, [node.this, *node.expressions])
        listed = ", ".join(value.sql for value in values[1:])
        return Typed(f"({values[0].sql} IN ({listed}))", _nullable(BOOLEAN, *values))

    def between(self, node: exp.Between) -> Typed:
        (value, low, high), _ = self.united(node, [node.this, node.args["low"], node.args["high"]])
        return Typed(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", _nullable(BOOLEAN, value, low, high))

    def like(self, node: exp.Like | exp.Escape) -> Typed:
        escape = "\\"
        if isinstance(node, exp.Escape):
            if not isinstance(node.this, exp.Like) or not isinstance(node.expression, exp.Literal):
                raise Refusal("this form of LIKE is not supported yet", node)
            node, escape = node.this, str(node.expression.this)
        value, pattern = self.string(node.this), self.string(node.expression)
        if pattern.literal is None:
            raise Refusal("LIKE takes a pattern written out as text, so that it can be checked beforehand", node)
        if len(escape) != 1 or _badly_escaped(pattern.literal, escape):
            raise Refusal(f"in the pattern of LIKE, {escape} must stand before %, _ or itself", node)
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return Typed(f"({value.sql} {word} {pattern.sql} ESCAPE {_text(escape)})", _nullable(BOOLEAN, value))

    def minus(self, node: exp.Neg) -> Typed:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self.literal(exp.Literal(this=f"-{node.this.this}", is_string=False))
        value = self.number(node.this)
        return Typed(f"(-{value.sql})", value.type)

    def arithmetic(self, node: exp.Binary) -> Typed:
        left, right = self.number(node.left), self.number(node.right)
        sign = _SIGNS[type(node)]
        if "decimal" in (family(left.type), family(right.type)) and "float" not in (
            family(left.type),
            family(right.type),
        ):
            return _decimal_arithmetic(node, sign, left, right)
        type_ = common(left.type, right.type)
        assert type_ is not None, "numbers have a common type"
        a, b = _converted(left, type_), _converted(right, type_)
        return Typed(f"({a.sql} {sign} {b.sql})", _nullable(type_, left, right))

    def coalesce(self, node: exp.Coalesce) -> Typed:
        values, type_ = self.united(node, [node.this, *node.expressions])
        nullable = all(value.type.nullable for value in values)
        return Typed(f"COALESCE({', '.join(value.sql for value in values)})", with_null(type_, nullable))

    def nullif(self, node: exp.Nullif) -> Typed:
        left, right, _ = self.pair(node, node.this, node.expression)
        kept = self.compile(node.this)
        return Typed(f"(CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {kept.sql} END)", kept.type.as_nullable())

    def if_(self, node: exp.If) -> Typed:
        return self.branches(node, [(node.this, node.args["true"])], node.args.get("false"))

    def case(self, node: exp.Case) -> Typed:
        ifs: list[tuple[exp.Expr, exp.Expr]] = []
        for branch in node.args["ifs"]:
            test = branch.this
            if node.this is not None:
                test = exp.EQ(this=node.this.copy(), expression=branch.this.copy())
            ifs.append((test, branch.args["true"]))
        return self.branches(node, ifs, node.args.get("default"))

    def branches(self, node: exp.Expr, ifs: list[tuple[exp.Expr, exp.Expr]], default: exp.Expr | None) -> Typed:
        results = [result for _, result in ifs] + [default or exp.Null()]
        values, type_ = self.united(node, results)
        whens = " ".join(
            f"WHEN {self.condition(test).sql} THEN {value.sql}" for (test, _), value in zip(ifs, values, strict=False)
        )
        return Typed(f"(CASE {whens} ELSE {values[-1].sql} END)", _nullable(type_, *values))

    def cast(self, node: exp.Cast) -> Typed:
        value = self.compile(node.this)
        try:
            to = Type.of(node.to.sql("spark") + " NOT NULL")
        except SchemaError:
            raise Refusal(f"CAST to {node.to.sql('spark')} is not supported yet", node) from None
        if family(to) is None:
            raise Refusal(f"CAST to {to.sql} is not supported yet", node)
        if value.literal is not None:
            return Typed(_constant(node, value.literal, to), to)
        sql = cast(value.sql, value.type, to)
        if sql is None:
            raise Refusal(f"CAST from {value.type.sql} to {to.sql} is not supported yet", node)
        return Typed(sql, with_null(types.canonical(to), value.type.nullable))

    def text_function(self, node: exp.Func) -> Typed:
        value = self.string(node.this)
        return Typed(_TEXT_FUNCTIONS[type(node)].format(value.sql), value.type)

    def length(self, node: exp.Length) -> Typed:
        value = self.string(node.this)
        return Typed(f"CAST(length({value.sql}) AS INTEGER)", with_null(INT, value.type.nullable))

    def substring(self, node: exp.Substring) -> Typed:
        value = self.string(node.this)
        bounds = [node.args.get("start"), node.args.get("length")]
        numbers = []
        for bound in bounds:
            if bound is not None and not (isinstance(bound, exp.Literal) and str(bound.this).isdigit()):
                raise Refusal("SUBSTRING takes a start and a length that are written out and not negative", node)
            numbers.append(None if bound is None else int(str(bound.this)))
        start, length = numbers
        # Spark takes 0 for the first character too.
        arguments = [value.sql, str(max(start or 1, 1)), *([] if length is None else [str(length)])]
        return Typed(f"substring({', '.join(arguments)})", value.type)

    def concat(self, node: exp.Expr) -> Typed:
        parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
        values = []
        for part in parts:
            value = self.compile(part)
            sql = cast(value.sql, value.type, STRING)
            if sql is None:
                raise Refusal(f"a {value.type.sql} cannot be turned into text yet", part)
            values.append(Typed(sql, value.type))
        return Typed(f"({' || '.join(value.sql for value in values)})", _nullable(STRING, *values))

    def string(self, node: exp.Expr) -> Typed:
        value = self.compile(node)
        if family(value.type) not in ("string", "null"):
            raise Refusal(f"expected text, but this is {value.type.sql}: write CAST(… AS STRING)", node)
        return value if family(value.type) == "string" else _converted(value, STRING)

    def number(self, node: exp.Expr) -> Typed:
        value = self.compile(node)
        if family(value.type) == "null":
            return _converted(value, INT)
        if family(value.type) not in ("integer", "decimal", "float"):
            raise Refusal(f"expected a number, but this is {value.type.sql}", node)
        return value

    def pair(self, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> tuple[Typed, Typed, Type]:
        (a, b), type_ = self.united(node, [left, right])
        return a, b, type_

    def united(self, node: exp.Expr, parts: Sequence[exp.Expr]) -> tuple[list[Typed], Type]:
        """All parts in the type that Spark takes for all of them. Text written out adapts to dates and times."""
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
                adapted.append(Typed(_constant(part, value.literal, type_), type_))
            else:
                adapted.append(_converted(value, type_))
        return adapted, type_


def _constant(node: exp.Expr, text: str, to: Type) -> str:
    sql = constant(text, to)
    if sql is None:
        raise Refusal(f"{text!r} is not a {to.sql}", node)
    return sql


def _converted(value: Typed, to: Type) -> Typed:
    """A value in a type that can hold it; the caller knows that it can."""
    if value.type.required == to.required:
        return value
    sql = cast(value.sql, value.type, to)
    assert sql is not None, f"{value.type.sql} converts to {to.sql}"
    return Typed(sql, with_null(to, value.type.nullable))


def _decimal_arithmetic(node: exp.Expr, sign: str, left: Typed, right: Typed) -> Typed:
    a, b = (
        _literal_decimal(each, value) or types.as_decimal(value.type)
        for each, value in ((node.this, left), (node.expression, right))
    )
    assert a is not None and b is not None, "integers and decimals have a decimal"  # noqa: PT018 -- one fact
    if sign == "*":
        type_ = types.decimal(a.precision + b.precision + 1, a.scale + b.scale)
    else:
        scale = max(a.scale, b.scale)
        type_ = types.decimal(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if type_ is None:
        raise Refusal(
            f"{left.type.sql} {sign} {right.type.sql} can have more than 38 digits: CAST to smaller decimals first",
            node,
        )
    inner = f"{_converted(left, a).sql} {sign} {_converted(right, b).sql}"
    return Typed(f"CAST({inner} AS {type_.sql})", _nullable(type_, left, right))


def _literal_decimal(node: exp.Expr, value: Typed) -> Type | None:
    """Spark takes a whole number written out for the smallest decimal that holds it."""
    node = node.unnest()
    if isinstance(node, exp.Literal) and family(value.type) == "integer":
        return types.decimal(len(str(node.this)), 0)
    return None


def _number_type(text: str) -> Type | None:
    digits = text.removeprefix("-")
    if "e" in digits.lower():
        float(digits)
        return DOUBLE
    if "." in digits:
        whole, _, fraction = digits.partition(".")
        whole = whole.lstrip("0")
        int(whole + fraction or "0")
        return types.decimal(max(len(whole) + len(fraction), 1), len(fraction))
    number = int(text)
    if -(2**31) <= number < 2**31:
        return INT
    return BIGINT if -(2**63) <= number < 2**63 else types.decimal(len(digits), 0)


def _badly_escaped(pattern: str, escape: str) -> bool:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if pattern[at + 1 : at + 2] not in ("%", "_", escape):
                return True
            at += 1
        at += 1
    return False


def _nullable(type_: Type, *values: Typed) -> Type:
    return with_null(type_, any(value.type.nullable for value in values))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {str(node.this).upper()}"
    if isinstance(node, exp.AggFunc):
        return f"the aggregate function {node.sql_name()}"
    if isinstance(node, exp.Window):
        return "a window function (OVER)"
    if isinstance(node, exp.Subquery | exp.Exists | exp.Query):
        return "a subquery in an expression"
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name()}"
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
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_SIGNS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TEXT_FUNCTIONS: Mapping[type[exp.Expr], str] = {
    exp.Upper: "upper({})",
    exp.Lower: "lower({})",
    exp.Trim: "trim({}, ' ')",
}
_BINARY = ("this", "expression")
_RULES: Mapping[type[exp.Expr], tuple[Callable[..., Any], tuple[str, ...]]] = {
    exp.Paren: (_Compiler.paren, ("this",)),
    exp.Column: (_Compiler.column, ("this",)),
    exp.Literal: (_Compiler.literal, ("this",)),
    exp.Boolean: (_Compiler.boolean, ("this",)),
    exp.Null: (_Compiler.null, ()),
    exp.And: (_Compiler.both, _BINARY),
    exp.Or: (_Compiler.both, _BINARY),
    exp.Not: (_Compiler.negated, ("this",)),
    **dict.fromkeys(_COMPARISONS, (_Compiler.compare, _BINARY)),
    exp.NullSafeEQ: (_Compiler.distinct_from, _BINARY),
    exp.NullSafeNEQ: (_Compiler.distinct_from, _BINARY),
    exp.Is: (_Compiler.is_, _BINARY),
    exp.In: (_Compiler.in_, ("this", "expressions", "query")),
    exp.Between: (_Compiler.between, ("this", "low", "high")),
    exp.Like: (_Compiler.like, ("this", "expression", "negate")),
    exp.Escape: (_Compiler.like, _BINARY),
    exp.Neg: (_Compiler.minus, ("this",)),
    **dict.fromkeys(_SIGNS, (_Compiler.arithmetic, _BINARY)),
    exp.Coalesce: (_Compiler.coalesce, ("this", "expressions")),
    exp.Nullif: (_Compiler.nullif, _BINARY),
    exp.If: (_Compiler.if_, ("this", "true", "false")),
    exp.Case: (_Compiler.case, ("this", "ifs", "default")),
    exp.Cast: (_Compiler.cast, ("this", "to")),
    exp.TryCast: (_Compiler.cast, ("this", "to")),
    **dict.fromkeys(_TEXT_FUNCTIONS, (_Compiler.text_function, ("this",))),
    exp.Length: (_Compiler.length, ("this",)),
    exp.Substring: (_Compiler.substring, ("this", "start", "length")),
    exp.Concat: (_Compiler.concat, ("expressions",)),
    exp.DPipe: (_Compiler.concat, _BINARY),
}
