"""Aggregate functions: which there are, what a call asks of the operator, and the type of its result.

Types are those of Spark SQL. A SUM that does not fit its type is NULL here, where Spark stops the query: the group may
well fit again after the next retraction. ANY_VALUE takes no NULL while there is another value; Spark may take one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.operators.aggregate_function import AggregateFunction
from rowkind.service.plan.errors import Refusal, word
from rowkind.service.plan.scalar.job_functions import function_of
from rowkind.service.plan.scalar.types import BIGINT, BOOLEAN, DOUBLE, decimal, family
from rowkind.service.python.function import PythonFunction

AGGREGATES: Mapping[str, AggregateFunction] = {
    "COUNT": "count",
    "COUNT_IF": "count",
    "SUM": "sum",
    "AVG": "avg",
    "MEAN": "avg",
    "MIN": "min",
    "MAX": "max",
    "ANY_VALUE": "any_value",
    "BOOL_AND": "bool_and",
    "EVERY": "bool_and",
    "BOOL_OR": "bool_or",
    "SOME": "bool_or",
    "ANY": "bool_or",
}
"""The function of the operator for each name that a user can write."""

_ORDER = (
    "it depends on the order of rows, which a changelog does not have: write MIN, MAX or ANY_VALUE, or pick the row "
)
_ROW = "by ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1"
_LISTS = "its result grows with the group, and each change would send all of it again"
_NAMED: Mapping[type[exp.Expr], str] = {
    exp.ArgMax: "MAX_BY",
    exp.ArgMin: "MIN_BY",
    exp.GroupConcat: "LISTAGG",
    exp.Quantile: "PERCENTILE",
    exp.ApproxQuantile: "PERCENTILE_APPROX",
    exp.Any: "ANY",
}
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE", "MAX_BY", "MIN_BY"), _ORDER + _ROW),
    **dict.fromkeys(("COLLECT_LIST", "COLLECT_SET", "ARRAY_AGG", "LISTAGG", "STRING_AGG"), _LISTS),
    "APPROX_COUNT_DISTINCT": "its sketch cannot take a row back: write COUNT(DISTINCT …), which is exact",
    **dict.fromkeys(
        ("STD", "STDDEV", "STDDEV_SAMP", "STDDEV_POP", "VARIANCE", "VAR_SAMP", "VAR_POP"),
        "compute it from SUM(x * x), SUM(x) and COUNT(x) over decimals, which are exact when rows are taken back",
    ),
    **dict.fromkeys(
        ("MEDIAN", "PERCENTILE", "PERCENTILE_APPROX", "APPROX_PERCENTILE", "MODE"), "it needs all values of a group"
    ),
    **dict.fromkeys(("TRY_SUM", "TRY_AVG"), "write SUM or AVG: what does not fit is NULL there too"),
}


@dataclass(frozen=True)
class ParsedCall:
    """A call of an aggregate function, in the operator's terms.

    `arguments` is empty for COUNT(*), and more than one expression only for COUNT(DISTINCT a, b). A row counts where
    `filter` is true.
    """

    function: AggregateFunction | PythonFunction
    arguments: tuple[exp.Expr, ...] = ()
    distinct: bool = False
    filter: exp.Expr | None = None


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate function, whether supported or not; FILTER (WHERE …) belongs to it."""
    if isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        return is_aggregate(node.this)
    if (function := function_of(node)) is not None:
        return function.kind == "aggregate"
    if isinstance(node, exp.Anonymous):
        return _name(node) in AGGREGATES or _name(node) in _REFUSED
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not isinstance(node.parent, exp.Predicate))


def aggregate_call(node: exp.Expr) -> ParsedCall:
    """What a node for which `is_aggregate` holds asks for. Raises Refusal."""
    if isinstance(node, exp.Filter):
        inner = aggregate_call(node.this)
        return ParsedCall(inner.function, inner.arguments, inner.distinct, _both(node.expression.this, inner.filter))
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
        return aggregate_call(node.this)
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    if (own := function_of(node)) is not None:
        if node.find(exp.Distinct):
            raise Refusal(f"{own.name} is given each row: aggregate the rows of a SELECT DISTINCT", node)
        return ParsedCall(own, tuple(node.expressions))
    name = _name(node)
    function = AGGREGATES.get(name)
    if function is None:
        reason = _REFUSED.get(name)
        raise Refusal(f"the aggregate function {name} is not supported{f': {reason}' if reason else ''}", node)
    arguments, distinct = _arguments(node)
    _check_count_of_arguments(node, name, arguments, distinct=distinct)
    if name == "COUNT_IF":
        return ParsedCall("count", filter=arguments[0])
    if function != "count":
        # Only sums and counts change where equal values are counted once.
        return ParsedCall(function, arguments, distinct and function in ("sum", "avg"))
    if distinct:
        return ParsedCall("count", arguments, distinct=True)
    if len(arguments) > 1:
        none = [exp.Not(this=exp.Is(this=each.copy(), expression=exp.Null())) for each in arguments]
        return ParsedCall("count", filter=exp.and_(*none, copy=False))
    constant = isinstance(arguments[0], exp.Star | exp.Literal | exp.Boolean)
    return ParsedCall("count", () if constant else arguments)


def aggregate_type(function: str | PythonFunction, argument: Type | None, at: exp.Expr | None = None) -> Type:
    """The type of a result, by the operator's function; `argument` is None for COUNT(*). Raises Refusal."""
    if isinstance(function, PythonFunction):
        return function.result
    if function == "count":
        return BIGINT
    assert argument is not None, "all but COUNT have an argument"
    kind = family(argument)
    match function, kind:
        case ("sum", "integer"):
            return BIGINT.as_nullable()
        case ("sum", "float") | ("avg", ("integer" | "float")):
            return DOUBLE.as_nullable()
        case ("sum", "decimal"):
            return _decimal(argument.precision + 10, argument.scale)
        case ("avg", "decimal"):
            return _decimal(argument.precision + 4, argument.scale + 4)
        case (("bool_and" | "bool_or"), "boolean"):
            return BOOLEAN.as_nullable()
        case (("min" | "max" | "any_value"), _) if kind not in (None, "null"):
            return argument.as_nullable()
    wanted = {"sum": "a number", "avg": "a number", "bool_and": "a condition", "bool_or": "a condition"}
    raise Refusal(
        f"{function.upper()} takes {wanted.get(function, 'a value that can be ordered')}, but this is {argument.sql}",
        at,
    )


def _decimal(precision: int, scale: int) -> Type:
    bounded = decimal(min(precision, 38), min(scale, 38))
    assert bounded is not None, "the precision is within bounds"
    return bounded.as_nullable()


def _name(node: exp.Expr) -> str:
    return _NAMED.get(type(node)) or (word(node) if isinstance(node, exp.Func) else "")


def _arguments(node: exp.Expr) -> tuple[tuple[exp.Expr, ...], bool]:
    """What stands in the parentheses, and whether DISTINCT stands before it."""
    if isinstance(node, exp.Any):
        return (node.this.unnest(),), False
    written = node.expressions if isinstance(node, exp.Anonymous) else [node.this, *node.expressions]
    if len(written) == 1 and isinstance(written[0], exp.Distinct):
        return tuple(written[0].expressions), True
    return tuple(each for each in written if each is not None), False


def _check_count_of_arguments(node: exp.Expr, name: str, arguments: tuple[exp.Expr, ...], *, distinct: bool) -> None:
    if not arguments or (len(arguments) > 1 and name != "COUNT"):
        raise Refusal(f"{name} takes one argument", node)
    if any(isinstance(each, exp.Star) for each in arguments) and (name != "COUNT" or distinct or len(arguments) > 1):
        raise Refusal(f"* stands only in COUNT(*), not in {name}({'DISTINCT ' if distinct else ''}…)", node)
    if distinct and name == "COUNT_IF":
        raise Refusal("COUNT_IF(DISTINCT …) counts at most one: write COUNT_IF(…)", node)


def _both(left: exp.Expr, right: exp.Expr | None) -> exp.Expr:
    return left if right is None else exp.and_(left, right)
