"""Functions that read an array or map, and return a number, text, a BOOLEAN or an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed, converted, unite
from rowkind.service.plan.scalar.types import BIGINT, BOOLEAN, INT, STRING, array_of, canonical, failure, family


def _element(arguments: Sequence[Typed]) -> Type:
    """The elements' type, or NULL."""
    found = arguments[0].type.element
    return maybe(found if family(found) is None else canonical(found))


def _comparable(arguments: Sequence[Typed]) -> str:
    """Return SQL for the value to search for in an array, converted to the type of the array's elements."""
    element = arguments[0].type.element
    if family(element) is None:
        raise Refusal(f"values of type {element.sql} cannot be compared")
    (_, wanted), type_ = (
        unite([Typed("", canonical(element)), arguments[1]]) if family(element) != "null" else ([], element)
    )
    if type_ != canonical(element).required:
        raise Refusal(f"the array has elements of type {element.sql}: cast the other value to this type")
    return str(wanted.sql)


def _contains(arguments: Sequence[Typed]) -> str:
    array, wanted = arguments[0].sql, _comparable(arguments)
    unknown = f"CASE WHEN {array} IS NULL OR len({array}) > list_count({array}) THEN NULL ELSE FALSE END"
    return f"(CASE WHEN {wanted} IS NULL THEN NULL WHEN list_contains({array}, {wanted}) THEN TRUE ELSE {unknown} END)"


def _position(arguments: Sequence[Typed]) -> str:
    array, wanted = arguments[0].sql, _comparable(arguments)
    found = f"COALESCE(list_position({array}, {wanted}), 0)"
    return f"(CASE WHEN {array} IS NULL OR {wanted} IS NULL THEN NULL ELSE CAST({found} AS BIGINT) END)"


def _joined(arguments: Sequence[Typed]) -> str:
    array, *rest = arguments
    texts = converted(array, array_of(STRING)).sql
    between, *instead = (argument.sql for argument in rest)
    each, other = variables(texts, between, *instead, count=2)
    if instead:
        texts = f"list_transform({texts}, lambda {each}: COALESCE({each}, {instead[0]}))"
    else:
        texts = f"list_filter({texts}, lambda {each}: {each} IS NOT NULL)"
    unknown = " OR ".join(f"{value} IS NULL" for value in (array.sql, between, *instead))
    whole = f"list_reduce({texts}, lambda {each}, {other}: {each} || {between} || {other})"
    return f"(CASE WHEN {unknown} THEN NULL WHEN len({texts}) = 0 THEN '' ELSE {whole} END)"


def _at_or_fail(template: str, zero: int) -> Callable[[Sequence[Typed]], str]:
    """Return a function that writes SQL for the element at an index. The SQL fails if the array has no such element."""

    def write(arguments: Sequence[Typed]) -> str:
        array, number = (argument.sql for argument in arguments)
        inside = template.format(array, number)
        reason = f"'the array has no element ' || {number} || ': GET and TRY_ELEMENT_AT return NULL instead'"
        bad = failure(reason, "BIGINT")
        place = f"CASE WHEN {inside} THEN {number}{' + 1' if zero == 0 else ''} ELSE {bad} END"
        known = f"{array} IS NULL OR {number} IS NULL"
        return f"(CASE WHEN {known} THEN NULL ELSE list_extract({array}, {place}) END)"

    return write


_FROM_ONE = "{1} <> 0 AND abs({1}) <= len({0})"
_FROM_ZERO = "{1} >= 0 AND {1} < len({0})"
ELEMENT = ScalarFunction("[]", "any array, int", _element, _at_or_fail(_FROM_ZERO, 0), "The first element is 0.")
ENTRY = ScalarFunction("[]", "any map, text", _element, "list_extract(map_extract({0}, {1}), 1)")
_GET = "(CASE WHEN {1} < 0 THEN NULL ELSE list_extract({0}, {1} + 1) END)"
_NO_ZERO = failure("'elements count from 1, or from -1 at the end'", "BIGINT")
_TRY = f"list_extract({{0}}, CASE WHEN {{1}} = 0 AND {{0}} IS NOT NULL THEN {_NO_ZERO} ELSE {{1}} END)"

FUNCTIONS = (
    ScalarFunction("SIZE CARDINALITY ARRAY_SIZE", "any array", INT, "CAST(len({0}) AS INTEGER)", "NULL for NULL."),
    ScalarFunction("SIZE CARDINALITY", "any map", INT, "CAST(cardinality({0}) AS INTEGER)", "NULL for NULL."),
    ScalarFunction("ARRAY_CONTAINS", "any array, any", maybe(BOOLEAN), _contains),
    ScalarFunction("ARRAY_POSITION", "any array, any", maybe(BIGINT), _position, "0 if the array does not contain it."),
    ScalarFunction("ARRAY_JOIN", "array, text", STRING, _joined, "Skips NULLs."),
    ScalarFunction("ARRAY_JOIN", "array, text, text", STRING, _joined, "The last argument replaces NULLs."),
    ScalarFunction(
        "GET", "any array, int", _element, _GET, "The first element is 0; NULL if the array has no such element."
    ),
    ScalarFunction(
        "ELEMENT_AT", "any array, int", _element, _at_or_fail(_FROM_ONE, 1), "The first element is 1, the last -1."
    ),
    ScalarFunction("TRY_ELEMENT_AT", "any array, int", _element, _TRY),
    ScalarFunction("ELEMENT_AT TRY_ELEMENT_AT", "any map, text", _element, "list_extract(map_extract({0}, {1}), 1)"),
    ScalarFunction("MAP_CONTAINS_KEY", "any map, text", BOOLEAN, "map_contains({0}, {1})"),
)
