"""Compiles calls of the job's Python functions: casts the arguments to the declared types. DuckDB makes the calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.compiler import Compiler
from rowkind.service.plan.scalar.typed import Typed, constant, converted
from rowkind.service.plan.scalar.types import common, duckdb, family, with_null
from rowkind.service.python.function import PythonFunction

FUNCTION = "function"
"""The argument name under which a call's node holds the job's function."""

ROWS = "rows"
"""The argument name that marks a node as a call of a table function whose rows are expanded."""


def function_of(node: exp.Expr) -> PythonFunction | None:
    """Return the job's function that a node calls, or None if the node calls no such function."""
    found = node.args.get(FUNCTION)
    return found if isinstance(found, PythonFunction) else None


def functions_in(*nodes: exp.Expr) -> Iterator[PythonFunction]:
    """Yield each of the job's functions that the expressions call, without duplicates."""
    calls = (function_of(each) for node in nodes for each in node.find_all(exp.Anonymous))
    yield from dict.fromkeys(each for each in calls if each is not None)


def call(compiler: Compiler, node: exp.Anonymous, function: PythonFunction) -> Typed:
    """Compile a call of one of the job's functions. Raises Refusal."""
    if function.kind == "table" and not node.args.get(ROWS):
        raise Refusal(
            f"{function.name} is a table function, which returns rows: write FROM …, LATERAL {function.name}(…) AS t",
            node,
        )
    if function.kind == "aggregate":
        raise Refusal(f"{function.name} is an aggregate function, which is allowed only in SELECT or HAVING", node)
    _check_count(node, function, len(node.expressions))
    values = [
        _argument(function, compiler.value(part), to, part)
        for part, to in zip(node.expressions, function.arguments, strict=True)
    ]
    left_out = not function.called_on_null and any(value.type.nullable for value in values)
    result = with_null(function.result, function.result.nullable or left_out)
    return Typed(f"{function.identity}({', '.join(value.sql for value in values)})", result)


def with_types(
    node: exp.Expr, function: PythonFunction, arguments: Sequence[exp.Expr], given: Sequence[Type]
) -> tuple[exp.Expr, ...]:
    """Cast the arguments of an aggregate function to the types that it takes. Raises Refusal."""
    _check_count(node, function, len(arguments))
    typed = []
    for argument, type_, wanted in zip(arguments, given, function.arguments, strict=True):
        if _same(type_, wanted):
            typed.append(argument)
            continue
        found = common(type_, wanted)
        if found is None or found.required != wanted.required:
            raise Refusal(f"{function.name} takes {wanted.sql} here, not {type_.sql}: write a CAST", argument)
        typed.append(exp.cast(argument.copy(), wanted.sql, dialect="spark"))
    return tuple(typed)


def _check_count(node: exp.Expr, function: PythonFunction, count: int) -> None:
    if count != len(function.arguments):
        takes = ", ".join(each.sql for each in function.arguments)
        raise Refusal(f"{function.name} takes ({takes}), but the number of arguments is {count}", node)


def _argument(function: PythonFunction, value: Typed, to: Type, at: exp.Expr) -> Typed:
    if _same(value.type, to):
        return value
    if family(value.type) == "null" and family(to) is None:
        return Typed(f"CAST(NULL AS {duckdb(to)})", to)
    if value.literal is not None and family(value.type) == "string" and family(to) in ("date", "timestamp", "local"):
        return Typed(constant(at, value.literal, to), to.required)
    found = common(value.type, to)
    if found is None or found.required != to.required:
        raise Refusal(f"{function.name} takes {to.sql} here, not {value.type.sql}: write a CAST", at)
    return converted(value, to)


def _same(given: Type, wanted: Type) -> bool:
    """Return whether two types are equal, apart from whether they allow NULL."""
    return given.kind == wanted.kind and given.sql == wanted.sql
