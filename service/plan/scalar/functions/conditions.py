"""Functions that choose a value by a condition, and tests for NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.exact_decimals import compared
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed, unite
from rowkind.service.plan.scalar.types import BOOLEAN, INT, with_null


def _united(values: Sequence[Typed]) -> Type:
    return unite(values)[1]


def _all_null(arguments: Sequence[Typed]) -> Type:
    return with_null(_united(arguments), all(each.type.nullable for each in arguments))


def _of_all(word: str) -> Callable[[Sequence[Typed]], str]:
    def write(arguments: Sequence[Typed]) -> str:
        return f"{word}({', '.join(each.sql for each in unite(arguments)[0])})"

    return write


def _second_choice(arguments: Sequence[Typed]) -> Type:
    return with_null(_united(arguments[1:]), any(each.type.nullable for each in arguments[1:]))


def _if_there(arguments: Sequence[Typed]) -> str:
    there, missing = unite(arguments[1:])[0]
    return f"(CASE WHEN {arguments[0].sql} IS NOT NULL THEN {there.sql} ELSE {missing.sql} END)"


def _equal(arguments: Sequence[Typed]) -> str:
    left, right = (each.sql for each in compared(arguments))
    return f"({left} IS NOT DISTINCT FROM {right})"


def _decoded(arguments: Sequence[Typed]) -> tuple[list[tuple[Typed, Typed]], Typed | None]:
    rest = arguments[1:]
    pairs = list(zip(rest[0::2], rest[1::2], strict=False))
    return pairs, rest[-1] if len(rest) % 2 else None


def _decode_type(arguments: Sequence[Typed]) -> Type:
    pairs, default = _decoded(arguments)
    return maybe(_united([result for _, result in pairs] + ([default] if default else [])))


def _decode(arguments: Sequence[Typed]) -> str:
    pairs, default = _decoded(arguments)
    value, *searches = compared([arguments[0], *(search for search, _ in pairs)])
    results, type_ = unite([result for _, result in pairs] + ([default] if default else []))
    whens = " ".join(
        f"WHEN {value.sql} IS NOT DISTINCT FROM {search.sql} THEN {result.sql}"
        for search, result in zip(searches, results, strict=False)
    )
    return f"(CASE {whens} ELSE {results[-1].sql if default else f'CAST(NULL AS {types.duckdb(type_)})'} END)"


def _first(arguments: Sequence[Typed]) -> Type:
    """The argument's type, or NULL."""
    return maybe(arguments[0].type)


def _zero(arguments: Sequence[Typed]) -> Type:
    return _united([*arguments, Typed("0", INT)])


FUNCTIONS = (
    ScalarFunction("IFNULL NVL", "any, any", _all_null, _of_all("COALESCE"), keeps_null=False),
    ScalarFunction("NVL2", "any, any, any", _second_choice, _if_there, keeps_null=False),
    ScalarFunction("ISNULL", "any", BOOLEAN, "({0} IS NULL)", keeps_null=False),
    ScalarFunction("ISNOTNULL", "any", BOOLEAN, "({0} IS NOT NULL)", keeps_null=False),
    ScalarFunction("EQUAL_NULL", "any, any", BOOLEAN, _equal, "Same as <=>.", keeps_null=False),
    ScalarFunction(
        "GREATEST", "any, any...", _all_null, _of_all("greatest"), "Ignores NULLs, unlike Flink.", keeps_null=False
    ),
    ScalarFunction(
        "LEAST", "any, any...", _all_null, _of_all("least"), "Ignores NULLs, unlike Flink.", keeps_null=False
    ),
    ScalarFunction("NULLIFZERO", "number", _first, "(CASE WHEN {0} = 0 THEN NULL ELSE {0} END)"),
    ScalarFunction(
        "ZEROIFNULL", "number", _zero, lambda given: _of_all("COALESCE")([*given, Typed("0", INT)]), keeps_null=False
    ),
    ScalarFunction("DECODE", "any, any, any...", _decode_type, _decode, "NULL equals NULL here.", keeps_null=False),
)
