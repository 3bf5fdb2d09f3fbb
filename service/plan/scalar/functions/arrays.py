"""Functions that create arrays.

Inside an array, as in Spark, NULL equals NULL, and sorts before all other values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import casts_of_nested, types
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed, converted, unite
from rowkind.service.plan.scalar.types import BOOLEAN, DATE, array_of, common, failure, family


def listed(values: Sequence[Typed]) -> Typed:
    """Return an ARRAY of the values, cast to their common type."""
    made, type_ = unite(values)
    if family(type_) == "null":
        raise Refusal("an ARRAY with only NULLs has no type: write CAST(NULL AS …)")
    return Typed(f"[{', '.join(value.sql for value in made)}]", array_of(type_))


def _array(arguments: Sequence[Typed]) -> Type:
    """The array's type."""
    return arguments[0].type.required


def _inner(arguments: Sequence[Typed]) -> Type:
    """The elements' type, or NULL."""
    return maybe(arguments[0].type.element)


def with_element(array: Typed, value: Typed) -> tuple[str, str, Type]:
    """Widen an array's type to fit a value; return the array, the value and the type. Raises Refusal."""
    type_ = common(array.type, array_of(value.type))
    if type_ is None:
        raise Refusal(
            f"the array has elements of type {array.type.element.sql}, but the value has type {value.type.sql}: write "
            "a CAST"
        )
    return converted(array, type_).sql, converted(value, type_.element).sql, type_


def _both(arguments: Sequence[Typed]) -> tuple[list[str], Type]:
    """Convert arrays to their common type; return the arrays and the type. Raises Refusal."""
    made, type_ = unite(arguments)
    return [value.sql for value in made], type_


def _null_where(nulls: Sequence[str], sql: str) -> str:
    return f"(CASE WHEN {' OR '.join(f'{each} IS NULL' for each in nulls)} THEN NULL ELSE {sql} END)"


def _added(template: str) -> Callable[[Sequence[Typed]], Typed]:
    def write(arguments: Sequence[Typed]) -> Typed:
        array, value, type_ = with_element(*arguments)
        return Typed(
            _null_where([array], template.format(array, value)), types.with_null(type_, arguments[0].type.nullable)
        )

    return write


def _inserted(arguments: Sequence[Typed]) -> Typed:
    given, place, value = arguments
    array, new, type_ = with_element(given, value)
    at = place.sql
    one, count = f"[CAST({new} AS {types.duckdb(type_.element)})]", f"len({array})"

    def nulls(number: str) -> str:
        return f"list_transform(range({number}), lambda each_0: CAST(NULL AS {types.duckdb(type_.element)}))"

    def split(number: str) -> str:
        return f"({array}[:{number}] || {one} || {array}[{number} + 1:])"

    bad = failure("'ARRAY_INSERT counts from 1, or from -1 at the end'", types.duckdb(type_))
    sql = (
        f"CASE WHEN {at} = 0 THEN {bad} WHEN {at} > {count} THEN {array} || {nulls(f'{at} - 1 - {count}')} || {one} "
        f"WHEN {at} > 0 THEN {split(f'({at} - 1)')} WHEN -{at} <= {count} + 1 THEN {split(f'({count} + 1 + {at})')} "
        f"ELSE {one} || {nulls(f'-{at} - {count} - 1')} || {array} END"
    )
    nullable = given.type.nullable or place.type.nullable
    return Typed(_null_where([array, at], sql), types.with_null(type_, nullable))


def _removed(arguments: Sequence[Typed]) -> Typed:
    array, value, type_ = with_element(*arguments)
    (each,) = variables(array, value)
    kept = f"list_filter({array}, lambda {each}: {each} IS DISTINCT FROM {value})"
    return Typed(
        _null_where([array, value], kept), types.with_null(type_, any(each.type.nullable for each in arguments))
    )


def _repeated(arguments: Sequence[Typed]) -> Typed:
    value, count = arguments
    if family(value.type) == "null":
        raise Refusal("an ARRAY with only NULLs has no type: write CAST(NULL AS …)")
    (each,) = variables(value.sql, count.sql)
    sql = f"list_transform(range({count.sql}), lambda {each}: {value.sql})"
    return Typed(_null_where([count.sql], sql), types.with_null(array_of(value.type), count.type.nullable))


def with_one_zero(value: Typed) -> str:
    """Return DuckDB SQL that replaces -0.0 with 0.0, as Spark does before it removes duplicate elements."""

    def plain(sql: str, type_: Type, _: Type) -> str:
        if types.is_nested(type_):
            return casts_of_nested.cast(sql, type_, type_, plain) or sql
        return f"({sql} + 0::{types.duckdb(type_)})" if family(type_) == "float" else sql

    floats = any(family(inner) == "float" for inner in value.type.walk())
    return plain(value.sql, value.type, value.type) if floats else value.sql


def once(array: str) -> str:
    """Return DuckDB SQL that removes duplicates from an array, and keeps the first of equal elements."""
    each, place = variables(array, count=2)
    return f"list_filter({array}, lambda {each}, {place}: list_position({array}, {each}) = {place})"


def _sets(write: Callable[[str, str], str]) -> Callable[[Sequence[Typed]], Typed]:
    def both(arguments: Sequence[Typed]) -> Typed:
        made, type_ = unite(arguments)
        left, right = (with_one_zero(each) for each in made)
        nullable = any(each.type.nullable for each in arguments)
        return Typed(_null_where([left, right], write(left, right)), types.with_null(type_, nullable))

    return both


def _having(word: str) -> Callable[[str, str], str]:
    def write(left: str, right: str) -> str:
        (each,) = variables(left, right)
        return f"list_filter({once(left)}, lambda {each}: list_position({right}, {each}) IS {word})"

    return write


def _overlapping(arguments: Sequence[Typed]) -> Typed:
    (left, right), _ = _both(arguments)
    (each,) = variables(left, right)
    shared = f"list_filter({left}, lambda {each}: {each} IS NOT NULL AND list_position({right}, {each}) IS NOT NULL)"
    unknown = " OR ".join(f"len({array}) > list_count({array})" for array in (left, right))
    sql = (
        f"CASE WHEN len({shared}) > 0 THEN TRUE "
        f"WHEN len({left}) > 0 AND len({right}) > 0 AND ({unknown}) THEN NULL ELSE FALSE END"
    )
    return Typed(_null_where([left, right], sql), BOOLEAN.as_nullable())


def _flat(arguments: Sequence[Typed]) -> str:
    array = arguments[0].sql
    return f"(CASE WHEN len({array}) > list_count({array}) THEN NULL ELSE flatten({array}) END)"


def _slice(arguments: Sequence[Typed]) -> str:
    array, start, length = (argument.sql for argument in arguments)
    first = f"(CASE WHEN {start} < 0 THEN len({array}) + {start} + 1 ELSE {start} END)"
    name = types.duckdb(arguments[0].type)
    zero = failure("'SLICE counts from 1, or from -1 at the end'", name)
    short = failure("'SLICE cannot have a negative length'", name)
    return _null_where(
        [array, start, length],
        f"CASE WHEN {start} = 0 THEN {zero} WHEN {length} < 0 THEN {short} "
        f"WHEN {first} < 1 OR {first} > len({array}) OR {length} = 0 THEN {array}[1:0] "
        f"ELSE list_slice({array}, {first}, {first} + {length} - 1) END",
    )


def _sorted(arguments: Sequence[Typed], *, nulls: bool = True) -> str:
    """Return SQL for the sorted array.

    NULLs come last, unless `nulls` is set and the order is ascending: then they come first.
    """
    array, *direction = arguments
    if family(array.type.element) is None:
        raise Refusal(f"values of type {array.type.element.sql} have no order: make an array of the values to sort by")
    up, down = (_in_order(array, word, first=nulls and word == "ASC") for word in ("ASC", "DESC"))
    return f"(CASE WHEN {direction[0].sql} THEN {up} WHEN NOT {direction[0].sql} THEN {down} END)" if direction else up


def _in_order(array: Typed, word: str, *, first: bool) -> str:
    """Return SQL for the array sorted by DuckDB.

    DuckDB sorts -0.0 before 0.0. In Spark, -0.0 and 0.0 are equal, and their order does not change.
    """
    if family(array.type.element) != "float":
        return f"list_sort({array.sql}, '{word}', 'NULLS {'FIRST' if first else 'LAST'}')"
    each, place = variables(array.sql, count=2)
    up = word == "ASC"
    null = f"CASE WHEN {each} IS NULL THEN {0 if first == up else 2} ELSE 1 END"
    zero = f"{each} + 0::{types.duckdb(array.type.element)}"
    pairs = (
        f"list_transform({array.sql}, lambda {each}, {place}: "
        f"{{'null': {null}, 'key': COALESCE({zero}, 0), 'place': {place if up else f'-{place}'}, 'value': {each}}})"
    )
    return f"list_transform(list_sort({pairs}, '{word}'), lambda {each}: {each}.value)"


def _extreme(word: str) -> Callable[[Sequence[Typed]], str]:
    """Return a function that writes SQL for the minimum or maximum element, which is the first of equal elements."""

    def write(arguments: Sequence[Typed]) -> str:
        (array,) = arguments
        if family(array.type.element) == "float":
            return f"({_in_order(array, 'ASC' if word == 'min' else 'DESC', first=False)})[1]"
        if family(array.type.element) is None:
            raise Refusal(f"values of type {array.type.element.sql} cannot be compared")
        return f"list_{word}({array.sql})"

    return write


def _reversed(arguments: Sequence[Typed]) -> str:
    return f"list_reverse({arguments[0].sql})"


def _concatenated(arguments: Sequence[Typed]) -> Typed:
    arrays, type_ = _both(arguments)
    nullable = any(each.type.nullable for each in arguments)
    return Typed(_null_where(arrays, " || ".join(arrays)), types.with_null(type_, nullable))


def _range(arguments: Sequence[Typed]) -> Typed:
    made, type_ = unite(arguments)
    first, last, *step = (value.sql for value in made)
    by = step[0] if step else f"(CASE WHEN {first} > {last} THEN -1 ELSE 1 END)"
    name = types.duckdb(array_of(type_))
    bad = failure(f"'SEQUENCE cannot go from ' || {first} || ' to ' || {last} || ' in steps of ' || {by}", name)
    numbers = f"CAST(generate_series(CAST({first} AS BIGINT), CAST({last} AS BIGINT), CAST({by} AS BIGINT)) AS {name})"
    sql = (
        f"CASE WHEN {first} = {last} THEN [{first}] "
        f"WHEN {by} = 0 OR ({by} > 0) <> ({last} > {first}) THEN {bad} ELSE {numbers} END"
    )
    nullable = any(each.type.nullable for each in arguments)
    return Typed(_null_where([first, last, *step], sql), types.with_null(array_of(type_), nullable))


def _zipped(arguments: Sequence[Typed]) -> Typed:
    names = [str(name.literal) for name in arguments[0::2]]
    arrays = arguments[1::2]
    if any(array.type.kind != "array" for array in arrays):
        raise Refusal("ARRAYS_ZIP takes arrays")
    if len({name.lower() for name in names}) < len(names) or any(name.startswith("col") for name in names):
        raise Refusal(
            "ARRAYS_ZIP takes columns with different names, which become the field names: use ZIP_WITH, or name the "
            "columns first"
        )
    (pair,) = variables(*(array.sql for array in arrays))
    fields = ", ".join(f"'{name}': {pair}[{place}]" for place, name in enumerate(names, 1))
    sql = f"list_transform(list_zip({', '.join(array.sql for array in arrays)}), lambda {pair}: {{{fields}}})"
    type_ = array_of(types.struct_of(zip(names, (array.type.element for array in arrays), strict=True)))
    nullable = any(array.type.nullable for array in arrays)
    return Typed(_null_where([array.sql for array in arrays], sql), types.with_null(type_, nullable))


def _days(arguments: Sequence[Typed]) -> str:
    first, last = (argument.sql for argument in arguments)
    (each,) = variables(first, last)
    count, sign = f"(abs({last} - {first}) + 1)", f"(CASE WHEN {last} < {first} THEN -1 ELSE 1 END)"
    days = f"list_transform(range({count}), lambda {each}: {first} + CAST({each} * {sign} AS INTEGER))"
    return _null_where([first, last], days)


FUNCTIONS = (
    ScalarFunction("ARRAY", "value...", "ARRAY of the arguments' common type", listed, keeps_null=False),
    ScalarFunction(
        "ARRAY_APPEND", "array, value", "the array's type, widened to fit the value", _added("list_append({0}, {1})")
    ),
    ScalarFunction(
        "ARRAY_PREPEND", "array, value", "the array's type, widened to fit the value", _added("list_prepend({1}, {0})")
    ),
    ScalarFunction(
        "ARRAY_INSERT",
        "array, int, value",
        "the array's type, widened to fit the value",
        _inserted,
        "Counts from 1, or from -1 at the end.",
    ),
    ScalarFunction("ARRAY_REMOVE", "array, value", "the array's type", _removed),
    ScalarFunction("ARRAY_COMPACT", "array", _array, "list_filter({0}, lambda each_0: each_0 IS NOT NULL)"),
    ScalarFunction(
        "ARRAY_DISTINCT",
        "array",
        _array,
        lambda given: once(with_one_zero(given[0])),
        "Keeps the first of equal elements.",
    ),
    ScalarFunction(
        "ARRAY_UNION",
        "array, array",
        "the arrays' common type",
        _sets(lambda left, right: once(f"({left} || {right})")),
    ),
    ScalarFunction("ARRAY_INTERSECT", "array, array", "the arrays' common type", _sets(_having("NOT NULL"))),
    ScalarFunction("ARRAY_EXCEPT", "array, array", "the arrays' common type", _sets(_having("NULL"))),
    ScalarFunction("ARRAYS_OVERLAP", "array, array", maybe(BOOLEAN), _overlapping),
    ScalarFunction("ARRAY_REPEAT", "value, int", "ARRAY of the value", _repeated),
    ScalarFunction("FLATTEN", "array of arrays", _inner, _flat),
    ScalarFunction(
        "ARRAYS_ZIP",
        "value...",
        "ARRAY of STRUCT",
        _zipped,
        "The arguments must be columns; their names become the field names.",
    ),
    ScalarFunction("SLICE", "array, int, int", _array, _slice, "Counts from 1, or from -1 at the end."),
    ScalarFunction("ARRAY_MIN", "array", _inner, _extreme("min")),
    ScalarFunction("ARRAY_MAX", "array", _inner, _extreme("max")),
    ScalarFunction("SORT_ARRAY", "array", _array, _sorted, "NULLs come first."),
    ScalarFunction("SORT_ARRAY", "array, boolean", _array, _sorted, "NULLs come last in descending order."),
    ScalarFunction(
        "ARRAY_SORT",
        "array",
        _array,
        lambda given: _sorted(given, nulls=False),
        "NULLs come last; a comparator is not supported.",
    ),
    ScalarFunction("REVERSE", "array", _array, _reversed),
    ScalarFunction("CONCAT", "array...", "the arguments' common type", _concatenated, keeps_null=False),
    ScalarFunction("SEQUENCE", "integer, integer", "ARRAY of the arguments' common type", _range),
    ScalarFunction("SEQUENCE", "integer, integer, integer", "ARRAY of the arguments' common type", _range),
    ScalarFunction("SEQUENCE", "day, day", array_of(DATE), _days, "Each day; an INTERVAL step is not supported."),
)
