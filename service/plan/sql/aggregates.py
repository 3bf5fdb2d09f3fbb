"""Aggregate functions: what a call asks of the operator, and the type of its result.

Which there are is in `service.plan.sql.aggregate_table`. Types are those of Spark SQL. ANY_VALUE takes no NULL while
there is another value; Spark may take one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.aggregate.function import ARRIVALS, BITS, EXTREMES, GATHERED, MOMENTS, AggregateFunction
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.scalar.types import BIGINT, BOOLEAN, DOUBLE, STRING, decimal, family
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
_NUMBERS = ("integer", "float", "decimal")
_BEHIND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
"""What stands behind a call and belongs to it."""


@dataclass(frozen=True)
class ParsedCall:
    """A call of an aggregate function, in the operator's terms.

    `arguments` is empty for COUNT(*); it is more than one expression for COUNT(DISTINCT a, b), for a value and what it
    is by, and for y and x. A row counts where `filter` is true. `order` is that of the values that are gathered, and
    `constants` what else they need: the separator of LISTAGG, the numbers of a percentile. `plain` says that the result
    has the argument's type where it need not, `several` that it is an array, `tries` that a result which does not fit
    its type is NULL.
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


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function, whether supported or not; FILTER (WHERE …) belongs to it."""
    if isinstance(node, _BEHIND):
        return is_aggregate(node.this)
    if (function := function_of(node)) is not None:
        return function.kind == "aggregate"
    if isinstance(node, exp.Anonymous):
        return _name(node) in AGGREGATES or _name(node) in REFUSED_AGGREGATES
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not isinstance(node.parent, exp.Predicate))


def is_known(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function that there is, of SQL or of the job."""
    return is_aggregate(node) and (function_of(node) is not None or _name(node) in AGGREGATES)


def no_aggregate(node: exp.Expr) -> Refusal:
    """The refusal of an aggregate function that there is not, or that cannot take a row back."""
    reason = REFUSED_AGGREGATES.get(_name(node))
    return Refusal(f"the aggregate function {_name(node)} is not supported{f': {reason}' if reason else ''}", node)


def is_window_function(node: exp.Expr) -> bool:
    """Whether a node is what OVER stands behind."""
    while isinstance(node.parent, _BEHIND) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def aggregate_call(node: exp.Expr) -> ParsedCall:
    """What a node for which `is_aggregate` holds asks for. Raises Refusal."""
    match node:
        case exp.Filter():
            inner = aggregate_call(node.this)
            return replace(inner, filter=_both(node.expression.this, inner.filter))
        case exp.IgnoreNulls() if not isinstance(node.this, exp.AnyValue):
            inner = aggregate_call(node.this)
            if inner.function not in ARRIVALS:
                raise Refusal("IGNORE NULLS stands behind FIRST and LAST; others leave NULLs out anyway", node)
            return replace(inner, filter=_both(_is_there(inner.arguments[0]), inner.filter))
        case exp.IgnoreNulls() | exp.RespectNulls():
            return aggregate_call(node.this)
        case exp.WithinGroup():
            return _call(node.this, tuple(node.expression.expressions))
    if (own := function_of(node)) is not None:
        if node.find(exp.Distinct):
            raise Refusal(f"{own.name} is given each row: aggregate the rows of a SELECT DISTINCT", node)
        return ParsedCall(own, tuple(node.expressions))
    return _call(node, ())


def _call(node: exp.Expr, within: tuple[exp.Ordered, ...]) -> ParsedCall:
    name = _name(node)
    entry = AGGREGATES.get(name)
    if entry is None:
        raise no_aggregate(node)
    arguments, distinct, order = _arguments(node)
    order = within or order
    _check_arguments(node, name, arguments, distinct=distinct)
    function = entry.function
    if order and function in ARRIVALS:
        least = (function == "first") != bool(order[0].args.get("desc"))
        raise Refusal(f"{name} is by arrival: of an order of your own write {'MIN' if least else 'MAX'}_BY(x, y)", node)
    if order and not (function in GATHERED and function != "collect_set"):
        raise Refusal(f"{name} takes no ORDER BY: leave it out", node)
    if function in GATHERED:
        return _gathered(node, name, arguments, order, distinct=distinct)
    match name:
        case "COUNT_IF":
            return ParsedCall("count", filter=arguments[0])
        case "APPROX_COUNT_DISTINCT":
            return ParsedCall("count", arguments[:1], distinct=True)
        case "REGR_COUNT":
            return ParsedCall("count", filter=exp.and_(*map(_is_there, arguments), copy=False))
        case "REGR_AVGX" | "REGR_AVGY":
            if distinct:
                raise Refusal(f"{name}(DISTINCT …) is not supported: take it over a SELECT DISTINCT", node)
            both = exp.and_(*map(_is_there, arguments), copy=False)
            return ParsedCall("avg", (arguments[1 if name == "REGR_AVGX" else 0],), filter=both)
    if function in ARRIVALS and len(arguments) == 2:
        if not isinstance(arguments[1], exp.Boolean):
            raise Refusal("the second argument says whether to ignore NULLs: write true or false", node)
        there = _is_there(arguments[0]) if arguments[1].this else None
        return ParsedCall(function, arguments[:1], filter=there)
    if function in EXTREMES or function in ("bool_and", "bool_or", "bit_and", "bit_or"):
        # Only sums and counts change where equal values are counted once.
        return ParsedCall(function, arguments)
    if distinct and len(arguments) > 1 and function in MOMENTS:
        raise Refusal(f"{name}(DISTINCT …) of two columns is not supported: take it over a SELECT DISTINCT", node)
    if function != "count" or distinct:
        return ParsedCall(function, arguments, distinct=distinct, tries=name.startswith("TRY_"))
    if len(arguments) > 1:
        return ParsedCall("count", filter=exp.and_(*map(_is_there, arguments), copy=False))
    constant = isinstance(arguments[0], exp.Star | exp.Literal | exp.Boolean)
    return ParsedCall("count", () if constant else arguments)


def _gathered(
    node: exp.Expr, name: str, arguments: tuple[exp.Expr, ...], order: tuple[exp.Ordered, ...], *, distinct: bool
) -> ParsedCall:
    """A call that is made of all values of a group."""
    function = AGGREGATES[name].function
    if function in ("collect_list", "collect_set", "listagg"):
        if distinct and any(each.this != arguments[0] for each in order):
            raise Refusal(f"{name}(DISTINCT x) can be ordered by x only, which stands for several rows", node)
        if function == "listagg":
            separator = arguments[1] if len(arguments) > 1 else exp.Literal.string("")
            if not separator.is_string:
                raise Refusal("the separator must be text, written out in the query", separator)
            return ParsedCall(function, arguments[:1], distinct, order=order, constants=(separator.name,))
        return ParsedCall("collect_set" if distinct else function, arguments, order=order)
    if name in ("PERCENTILE_CONT", "PERCENTILE_DISC") or (name == "MODE" and not arguments):
        if len(order) != 1:
            raise Refusal(f"{name} needs WITHIN GROUP (ORDER BY …) with one expression behind it", node)
        value, arguments = order[0].this, (order[0].this, *arguments)
    else:
        if order:
            raise Refusal(f"{name} takes no ORDER BY: the value stands in the parentheses", node)
        value = arguments[0]
    if name == "MODE":
        return ParsedCall("mode", (value,), order=order)
    fractions, several = _fractions(exp.Literal.number("0.5") if name == "MEDIAN" else arguments[1])
    plain = name in ("PERCENTILE_APPROX", "APPROX_PERCENTILE")
    return ParsedCall(function, (value,), distinct, None, order, fractions, plain, several)


def _fractions(node: exp.Expr) -> tuple[tuple[str, ...], bool]:
    """The numbers from 0 to 1 that a percentile is asked for, and whether they stand in an ARRAY."""
    several = isinstance(node, exp.Array) or (isinstance(node, exp.Anonymous) and node.name.upper() == "ARRAY")
    written = node.expressions if several else [node]
    for each in written:
        if not (isinstance(each, exp.Literal) and not each.is_string and 0 <= Decimal(each.name) <= 1):
            raise Refusal("a percentile is a number from 0 to 1, or an ARRAY of such, written out in the query", each)
    return tuple(each.name for each in written), several


def aggregate_type(call: ParsedCall, arguments: tuple[Type, ...], at: exp.Expr | None = None) -> Type:
    """The type of a result, by what is asked for and the types of its arguments. Raises Refusal."""
    function = call.function
    if isinstance(function, PythonFunction):
        return function.result
    if function == "count":
        return BIGINT
    argument = arguments[0]
    kind = family(argument)
    if function in MOMENTS or (function in GATHERED and function.startswith("percentile") and not call.plain):
        if any(family(each) not in _NUMBERS for each in arguments):
            wrong = next(each for each in arguments if family(each) not in _NUMBERS)
            raise Refusal(f"{_called(at, function)} takes numbers, but this is {wrong.sql}", at)
        return Type("array", items=DOUBLE, nullable=True) if call.several else DOUBLE.as_nullable()
    match function, kind:
        case ("sum", "integer"):
            return BIGINT.as_nullable()
        case ("sum", "float") | ("avg", ("integer" | "float")):
            return DOUBLE.as_nullable()
        case ("sum", "decimal"):
            return _decimal(argument.precision + 10, argument.scale)
        case ("avg", "decimal"):
            return _decimal(argument.precision + 4, argument.scale + 4)
        case (("bit_and" | "bit_or" | "bit_xor"), "integer"):
            return argument.as_nullable()
        case (("bool_and" | "bool_or"), "boolean"):
            return BOOLEAN.as_nullable()
        case (("min" | "max" | "any_value"), _) if kind not in (None, "null"):
            return argument.as_nullable()
        case (("first" | "last"), _) if kind != "null":
            return argument.as_nullable()
        case (("min_by" | "max_by"), _) if kind != "null":
            if not arguments[1].orderable:
                raise Refusal(f"a {arguments[1].sql} has no order: take a field of it, or a key", at)
            return argument.as_nullable()
        case (("mode" | "percentile_disc"), _) if kind not in (None, "null") and argument.orderable:
            return Type("array", items=argument.required, nullable=True) if call.several else argument.as_nullable()
        case (("collect_list" | "collect_set"), _) if kind != "null" and not argument.opaque:
            return Type("array", items=argument.required)
        case ("listagg", "string"):
            return STRING.as_nullable()
    wanted = {
        **dict.fromkeys(("sum", "avg"), "a number"),
        **dict.fromkeys(BITS, "a whole number"),
        **dict.fromkeys(("bool_and", "bool_or"), "a condition"),
        **dict.fromkeys(("first", "last", "min_by", "max_by", "collect_list", "collect_set"), "a value with a type"),
        "listagg": "text",
    }
    raise Refusal(
        f"{_called(at, function)} takes {wanted.get(function, 'a value that can be ordered')}, but this is "
        f"{argument.sql}",
        at,
    )


def _called(at: exp.Expr | None, function: str) -> str:
    while isinstance(at, _BEHIND):
        at = at.this
    return (_name(at) if at is not None else "") or function.upper()


def _decimal(precision: int, scale: int) -> Type:
    bounded = decimal(min(precision, 38), min(scale, 38))
    assert bounded is not None, "the precision is within bounds"
    return bounded.as_nullable()


def _name(node: exp.Expr) -> str:
    written = word(node) if isinstance(node, exp.Func) else ""
    return written if written in AGGREGATES else _NAMED.get(type(node), written)


def _arguments(node: exp.Expr) -> tuple[tuple[exp.Expr, ...], bool, tuple[exp.Ordered, ...]]:
    """What stands in the parentheses, whether DISTINCT stands before it, and what ORDER BY says behind it."""
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


def _check_arguments(node: exp.Expr, name: str, arguments: tuple[exp.Expr, ...], *, distinct: bool) -> None:
    entry = AGGREGATES[name]
    if not entry.fewest <= len(arguments) <= entry.most or (name == "COUNT" and not arguments):
        many = {1: "one argument", 2: "two arguments"}.get(entry.fewest, "no arguments")
        raise Refusal(f"{name} takes {many if entry.fewest == entry.most else entry.takes}", node)
    if any(isinstance(each, exp.Star) for each in arguments) and (name != "COUNT" or distinct or len(arguments) > 1):
        raise Refusal(f"* stands only in COUNT(*), not in {name}({'DISTINCT ' if distinct else ''}…)", node)
    if distinct and name == "COUNT_IF":
        raise Refusal("COUNT_IF(DISTINCT …) counts at most one: write COUNT_IF(…)", node)


def _is_there(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def _both(left: exp.Expr, right: exp.Expr | None) -> exp.Expr:
    return left if right is None else exp.and_(left, right)
