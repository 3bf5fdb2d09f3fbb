"""Translates aggregate calls in SQL to the operator's functions, and determines the calls' result types.

The functions are listed in `service.plan.sql.aggregate_table`. The result types are the same as in Spark SQL. Unlike in
Spark, ANY_VALUE returns NULL only if all of the group's values are NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.aggregate.function import ARRIVALS, BITS, EXTREMES, GATHERED, MOMENTS, AggregateFunction
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.scalar.types import BIGINT, DOUBLE, STRING, Family, decimal, family
from rowkind.service.plan.sql.aggregate_table import AGGREGATES, REFUSED_AGGREGATES
from rowkind.service.python.function import PythonFunction

_NAMED: Mapping[type[exp.Expr], str] = {
    exp.ArgMax: "MAX_BY",
    exp.ArgMin: "MIN_BY",
    exp.ArrayAgg: "COLLECT_LIST",
    exp.ArrayUniqueAgg: "COLLECT_SET",
    exp.GroupConcat: "LISTAGG",
    exp.ApproxDistinct: "APPROX_COUNT_DISTINCT",
    exp.ApproxQuantile: "PERCENTILE_APPROX",
    exp.VariancePop: "VAR_POP",
    exp.Any: "ANY",
}
_BEHIND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
"""The nodes of clauses that follow a call and are part of the call, such as FILTER."""


@dataclass(frozen=True)
class ParsedCall:
    """An aggregate call, translated to a function of the operator.

    - `arguments`: empty for COUNT(*). There are several in COUNT(DISTINCT a, b), in functions of y and x, and in
      functions such as MAX_BY.
    - `filter`: the call reads only rows for which this condition is true.
    - `order`: the order of the values in the result, for example in that of LISTAGG.
    - `constants`: the function's other parameters: LISTAGG's separator, or the fractions of a percentile.
    - `plain`: the result of a percentile has the argument's type rather than DOUBLE.
    - `several`: the result is an array, because the fractions are written as an ARRAY.
    - `tries`: a result that does not fit its type becomes NULL.
    """

    function: AggregateFunction | PythonFunction
    arguments: tuple[exp.Expr, ...] = ()
    distinct: bool = False
    filter: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    constants: tuple[str, ...] = ()
    plain: bool = False
    several: bool = False
    tries: bool = False


@dataclass(frozen=True)
class _WrittenCall:
    """A call as written in SQL. `arguments` are in its parentheses; `order` is its ORDER BY or WITHIN GROUP clause."""

    node: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool
    order: tuple[exp.Ordered, ...]

    @property
    def function(self) -> AggregateFunction:
        """The operator's function that computes the call."""
        return AGGREGATES[self.name].function


def bare(node: exp.Expr) -> exp.Expr:
    """Return a call without the clauses that follow it, such as FILTER."""
    while isinstance(node, _BEHIND):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is an aggregate call, supported or not.

    A FILTER (WHERE …) clause is part of the call.
    """
    if isinstance(node, _BEHIND):
        return is_aggregate(node.this)
    if (function := function_of(node)) is not None:
        return function.kind == "aggregate"
    if isinstance(node, exp.Anonymous):
        return _name(node) in AGGREGATES or _name(node) in REFUSED_AGGREGATES
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not isinstance(node.parent, exp.Predicate))


def is_known(node: exp.Expr) -> bool:
    """Return whether a node calls a supported aggregate function: a built-in function or one that the job defines."""
    return is_aggregate(node) and (function_of(node) is not None or _name(node) in AGGREGATES)


def no_aggregate(node: exp.Expr) -> Refusal:
    """Return the error for an aggregate function that does not exist or cannot process retractions."""
    reason = REFUSED_AGGREGATES.get(_name(node))
    return Refusal(f"the aggregate function {_name(node)} is not supported{f': {reason}' if reason else ''}", node)


def is_window_function(node: exp.Expr) -> bool:
    """Return whether a node is a window function call, that is, a call followed by OVER."""
    while isinstance(node.parent, _BEHIND) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def aggregate_call(node: exp.Expr) -> ParsedCall:
    """Translate an aggregate call, for which `is_aggregate` must return True. Raises Refusal."""
    match node:
        case exp.Filter():
            inner = aggregate_call(node.this)
            return replace(inner, filter=_both(node.expression.this, inner.filter))
        case exp.IgnoreNulls() if not isinstance(node.this, exp.AnyValue):
            inner = aggregate_call(node.this)
            if inner.function not in ARRIVALS:
                raise Refusal(
                    "IGNORE NULLS is allowed only with FIRST and LAST; other aggregate functions always ignore NULLs",
                    node,
                )
            return replace(inner, filter=_both(_is_there(inner.arguments[0]), inner.filter))
        case exp.IgnoreNulls() | exp.RespectNulls():
            return aggregate_call(node.this)
        case exp.WithinGroup():
            return _call(node.this, tuple(node.expression.expressions))
    if (own := function_of(node)) is not None:
        if node.find(exp.Distinct):
            raise Refusal(
                f"DISTINCT is not supported in {own.name}, which reads every row: aggregate over a SELECT DISTINCT",
                node,
            )
        return ParsedCall(own, tuple(node.expressions))
    return _call(node, ())


def _call(node: exp.Expr, within: tuple[exp.Ordered, ...]) -> ParsedCall:
    if _name(node) not in AGGREGATES:
        raise no_aggregate(node)
    arguments, distinct, order = _arguments(node)
    call = _WrittenCall(node, _name(node), arguments, distinct, within or order)
    _check_arguments(call)
    _check_order(call)
    function = call.function
    if function in GATHERED:
        return _gathered(call)
    if function == "count":
        return _counted(call)
    if function in ARRIVALS:
        return _arrived(call)
    if function in EXTREMES or function in ("bool_and", "bool_or", "bit_and", "bit_or"):
        # DISTINCT makes no difference to these functions.
        return ParsedCall(function, arguments)
    two = len(arguments) > 1
    if distinct and two:
        columns = "" if function == "avg" else " of two columns"
        raise Refusal(f"{call.name}(DISTINCT …){columns} is not supported: aggregate over a SELECT DISTINCT", node)
    if function == "avg" and two:
        return ParsedCall("avg", (arguments[1 if call.name == "REGR_AVGX" else 0],), filter=_all_there(arguments))
    return ParsedCall(function, arguments, distinct=distinct, tries=call.name.startswith("TRY_"))


def _counted(call: _WrittenCall) -> ParsedCall:
    """Return a call that counts rows or values."""
    if call.name == "COUNT_IF":
        return ParsedCall("count", filter=call.arguments[0])
    if call.name == "APPROX_COUNT_DISTINCT":
        return ParsedCall("count", call.arguments[:1], distinct=True)
    if call.distinct and call.name != "REGR_COUNT":
        return ParsedCall("count", call.arguments, distinct=True)
    if len(call.arguments) > 1:
        return ParsedCall("count", filter=_all_there(call.arguments))
    constant = isinstance(call.arguments[0], exp.Star | exp.Literal | exp.Boolean)
    return ParsedCall("count", () if constant else call.arguments)


def _arrived(call: _WrittenCall) -> ParsedCall:
    """Return a call of FIRST or LAST. An optional second argument says whether to ignore NULLs. Raises Refusal."""
    value, *ignores = call.arguments
    if ignores and not isinstance(ignores[0], exp.Boolean):
        raise Refusal("the second argument, which says whether to ignore NULLs, must be TRUE or FALSE", call.node)
    return ParsedCall(call.function, (value,), filter=_is_there(value) if ignores and ignores[0].this else None)


def _gathered(call: _WrittenCall) -> ParsedCall:
    """Return a call whose result depends on all of a group's values, such as a percentile. Raises Refusal."""
    node, name, arguments, order = call.node, call.name, call.arguments, call.order
    if call.function in ("collect_list", "collect_set", "listagg"):
        return _listed_values(call)
    if name in ("PERCENTILE_CONT", "PERCENTILE_DISC") or (name == "MODE" and not arguments):
        if len(order) != 1:
            raise Refusal(f"{name} must be followed by WITHIN GROUP (ORDER BY …) with exactly one expression", node)
        value, arguments = order[0].this, (order[0].this, *arguments)
    else:
        if order:
            raise Refusal(f"{name} cannot have ORDER BY: pass the value as an argument", node)
        value = arguments[0]
    if name == "MODE":
        return ParsedCall("mode", (value,), order=order)
    fractions, several = _fractions(exp.Literal.number("0.5") if name == "MEDIAN" else arguments[1])
    plain = name in ("PERCENTILE_APPROX", "APPROX_PERCENTILE")
    return ParsedCall(call.function, (value,), call.distinct, None, order, fractions, plain, several)


def _listed_values(call: _WrittenCall) -> ParsedCall:
    """Return a call whose result lists all values. Raises Refusal."""
    if call.distinct and any(each.this != call.arguments[0] for each in call.order):
        raise Refusal(
            f"{call.name}(DISTINCT x) can be ordered only by x, because several rows may have the same x", call.node
        )
    if call.function != "listagg":
        return ParsedCall("collect_set" if call.distinct else call.function, call.arguments, order=call.order)
    separator = call.arguments[1] if len(call.arguments) > 1 else exp.Literal.string("")
    if not separator.is_string:
        raise Refusal("the separator must be a string literal", separator)
    return ParsedCall("listagg", call.arguments[:1], call.distinct, order=call.order, constants=(separator.name,))


def _fractions(node: exp.Expr) -> tuple[tuple[str, ...], bool]:
    """Return a percentile's fractions, from 0 to 1, and whether the SQL contains them as an ARRAY. Raises Refusal."""
    several = isinstance(node, exp.Array) or (isinstance(node, exp.Anonymous) and node.name.upper() == "ARRAY")
    written = node.expressions if several else [node]
    for each in written:
        if not (isinstance(each, exp.Literal) and not each.is_string and 0 <= Decimal(each.name) <= 1):
            raise Refusal(
                "the percentile must be a literal number from 0 to 1, or a literal ARRAY of such numbers", each
            )
    return tuple(each.name for each in written), several


def aggregate_type(call: ParsedCall, arguments: tuple[Type, ...], at: exp.Expr | None = None) -> Type:
    """Return a call's result type; `arguments` are the types of the call's arguments. Raises Refusal."""
    function = call.function
    if isinstance(function, PythonFunction):
        return function.result
    if function == "count":
        return BIGINT
    of_numbers = function in GATHERED and function.startswith("percentile") and not call.plain
    result = _DOUBLE if of_numbers else _RESULTS[function]
    for each in arguments if result is _DOUBLE else arguments[:1]:
        if not result.fits(each):
            raise Refusal(f"{_called(at, function)} takes {result.takes}, not {each.sql}", at)
    if function in ("min_by", "max_by") and not arguments[1].orderable:
        raise Refusal(f"values of type {arguments[1].sql} have no order: use one of their fields, or a key", at)
    found = result.of(arguments[0])
    return Type("array", items=found.required, nullable=True) if call.several else found


@dataclass(frozen=True)
class _ResultRule:
    """The rule that determines a function's result type.

    `takes` describes the accepted arguments in messages. `fits` returns whether an argument's type is accepted. `of`
    returns the result type, given the first argument's type.
    """

    takes: str
    fits: Callable[[Type], bool]
    of: Callable[[Type], Type] = Type.as_nullable


def _is(*families: Family) -> Callable[[Type], bool]:
    return lambda type_: family(type_) in families


def _sum(of: Type) -> Type:
    plain = {"integer": BIGINT, "float": DOUBLE}.get(str(family(of)))
    return _decimal(of.precision + 10, of.scale) if plain is None else plain.as_nullable()


def _average(of: Type) -> Type:
    return _decimal(of.precision + 4, of.scale + 4) if family(of) == "decimal" else DOUBLE.as_nullable()


_NUMBER = _is("integer", "float", "decimal")
_DOUBLE = _ResultRule("numbers", _NUMBER, lambda _: DOUBLE.as_nullable())
_ORDERED = _ResultRule("a value that can be ordered", lambda of: family(of) not in (None, "null"))
_TYPED = _ResultRule("a value with a type", lambda of: family(of) != "null")
_LIST = _ResultRule(
    _TYPED.takes, lambda of: _TYPED.fits(of) and not of.opaque, lambda of: Type("array", items=of.required)
)
_RESULTS: Mapping[str, _ResultRule] = {
    **dict.fromkeys(MOMENTS, _DOUBLE),
    "sum": _ResultRule("a number", _NUMBER, _sum),
    "avg": _ResultRule("a number", _NUMBER, _average),
    **dict.fromkeys(BITS, _ResultRule("an integer", _is("integer"))),
    **dict.fromkeys(("bool_and", "bool_or"), _ResultRule("a condition", _is("boolean"))),
    **dict.fromkeys(("min", "max", "any_value", "mode", "percentile_disc"), _ORDERED),
    **dict.fromkeys(("first", "last", "min_by", "max_by"), _TYPED),
    **dict.fromkeys(("collect_list", "collect_set"), _LIST),
    "listagg": _ResultRule("text", _is("string"), lambda _: STRING.as_nullable()),
}


def _called(at: exp.Expr | None, function: str) -> str:
    return (_name(bare(at)) if at is not None else "") or function.upper()


def _decimal(precision: int, scale: int) -> Type:
    bounded = decimal(min(precision, 38), min(scale, 38))
    assert bounded is not None, "the precision is within bounds"
    return bounded.as_nullable()


def _name(node: exp.Expr) -> str:
    written = word(node) if isinstance(node, exp.Func) else ""
    return written if written in AGGREGATES else _NAMED.get(type(node), written)


def _arguments(node: exp.Expr) -> tuple[tuple[exp.Expr, ...], bool, tuple[exp.Ordered, ...]]:
    """Return a call's arguments, whether DISTINCT precedes the arguments, and the ORDER BY terms that follow them."""
    if isinstance(node, exp.Any):
        return (node.this.unnest(),), False, ()
    if isinstance(node, exp.Anonymous):
        written = node.expressions
    else:
        rest = [each for name in node.arg_types if name != "this" for each in _listed(node.args.get(name))]
        written = [each for each in (node.this, *rest) if isinstance(each, exp.Expr)]
    order: tuple[exp.Ordered, ...] = ()
    if written and isinstance(written[0], exp.Order):
        order, written = tuple(written[0].expressions), [written[0].this, *written[1:]]
    if written and isinstance(written[0], exp.Distinct):
        return (*written[0].expressions, *written[1:]), True, order
    return tuple(written), False, order


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _check_arguments(call: _WrittenCall) -> None:
    entry, name, many = AGGREGATES[call.name], call.name, len(call.arguments)
    if not entry.fewest <= many <= entry.most or (name == "COUNT" and not many):
        takes = {1: "one argument", 2: "two arguments"}.get(entry.fewest, "no arguments")
        raise Refusal(f"{name} takes {takes if entry.fewest == entry.most else entry.takes}", call.node)
    if any(isinstance(each, exp.Star) for each in call.arguments) and (name != "COUNT" or call.distinct or many > 1):
        raise Refusal(
            f"* is allowed only in COUNT(*), not in {name}({'DISTINCT ' if call.distinct else ''}…)", call.node
        )
    if call.distinct and name == "COUNT_IF":
        raise Refusal(
            "COUNT_IF(DISTINCT …) is not supported, because its result is at most 1: write COUNT_IF(…)", call.node
        )


def _check_order(call: _WrittenCall) -> None:
    name, function = call.name, call.function
    if call.order and function in ARRIVALS:
        by = "MIN" if (function == "first") != bool(call.order[0].args.get("desc")) else "MAX"
        raise Refusal(
            f"{name} cannot have ORDER BY, because it follows the order of arrival: write {by}_BY(x, y)", call.node
        )
    if call.order and not (function in GATHERED and function != "collect_set"):
        raise Refusal(f"{name} cannot have ORDER BY: remove it", call.node)


def _all_there(nodes: Sequence[exp.Expr]) -> exp.Expr:
    return exp.and_(*map(_is_there, nodes), copy=False)


def _is_there(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def _both(left: exp.Expr, right: exp.Expr | None) -> exp.Expr:
    return left if right is None else exp.and_(left, right)
