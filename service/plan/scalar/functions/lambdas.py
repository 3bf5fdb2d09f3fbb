"""Functions that apply a lambda (->) to the elements of an array or the entries of a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.functions.arrays import once
from rowkind.service.plan.scalar.functions.function import Function, ScalarFunction, maybe
from rowkind.service.plan.scalar.typed import Typed, converted
from rowkind.service.plan.scalar.types import BOOLEAN, INT, STRING, array_of, family, map_of, with_null


def _applied(function: Typed, *arguments: Type) -> tuple[list[str], Typed]:
    """Return a lambda's parameter names, and its body."""
    assert isinstance(function, Function), "the parameter's kind accepts only lambdas"
    names, body = function.apply([with_null(each, nullable=True) for each in arguments])
    return names.split(", "), body


def _condition(body: Typed) -> str:
    if family(body.type) not in ("boolean", "null"):
        raise Refusal(f"the lambda returns {body.type.sql}, not a condition: write a comparison")
    return converted(body, BOOLEAN).sql


def _known(body: Typed) -> Typed:
    if family(body.type) == "null":
        raise Refusal("the lambda always returns NULL, which has no type: write CAST(NULL AS …)")
    return body


def _let(values: Mapping[str, str], body: str) -> str:
    """Return DuckDB SQL that binds names to values, and evaluates a body that uses the names.

    DuckDB can bind a name only as a lambda's parameter, so each value is put into a list of one element, and a lambda
    over this list binds the name.
    """
    for name, value in reversed(list(values.items())):
        body = f"list_transform([{value}], lambda {name}: {body})[1]"
    return body


def _of_element(array: Typed, function: Typed) -> tuple[str, Mapping[str, str], Typed]:
    """Compile a lambda whose parameters are an element and, optionally, the element's index, starting at 0.

    Return the DuckDB lambda's parameters, the values of the other names in the body, and the body.
    """
    (each, *index), body = _applied(function, array.type.element, INT)
    if not index:
        return each, {}, body
    # DuckDB's index starts at 1, and is a BIGINT.
    place = f"{index[0]}_1"
    return f"{each}, {place}", {index[0]: f"CAST({place} - 1 AS INTEGER)"}, body


def _transformed(arguments: Sequence[Typed]) -> Typed:
    array, function = arguments
    each, values, body = _of_element(array, function)
    sql = f"list_transform({array.sql}, lambda {each}: {_let(values, _known(body).sql)})"
    return Typed(sql, with_null(array_of(body.type), array.type.nullable))


def _filtered(arguments: Sequence[Typed]) -> Typed:
    array, function = arguments
    each, values, body = _of_element(array, function)
    passes = _let(values, _condition(body))
    return Typed(f"list_filter({array.sql}, lambda {each}: COALESCE({passes}, FALSE))", array.type)


def _decided(arguments: Sequence[Typed], *, by: bool) -> Typed:
    """Compile EXISTS if `by` is set, otherwise FORALL.

    EXISTS is TRUE if the condition is TRUE for one element; FORALL is FALSE if it is FALSE for one element. Otherwise,
    the result is NULL if the condition is NULL for one element.
    """
    array, function = arguments
    (each,), body = _applied(function, array.type.element)
    found = f"list_transform({array.sql}, lambda {each}: {_condition(body)})"
    word, other = ("TRUE", "FALSE") if by else ("FALSE", "TRUE")
    sql = (
        f"CASE WHEN {array.sql} IS NULL THEN NULL WHEN list_contains({found}, {word}) THEN {word} "
        f"WHEN len({found}) > list_count({found}) THEN NULL ELSE {other} END"
    )
    return Typed(f"({sql})", maybe(BOOLEAN))


def _folded(arguments: Sequence[Typed]) -> Typed:
    array, start, merge, *finish = arguments
    type_ = start.type.required
    if family(type_) == "null":
        raise Refusal("the start value is NULL, which has no type: write CAST(NULL AS …)")
    names, body = _applied(merge, type_, array.type.element)
    if len(names) < 2:
        raise Refusal("the first lambda must have two parameters: the accumulator and an element")
    if body.type.required != type_:
        raise Refusal(
            f"the start value has type {type_.sql}, but the lambda returns {body.type.sql}: cast the start value"
        )
    left, right = variables(array.sql, start.sql, body.sql, *names, count=2)
    name, nothing = types.duckdb(type_), f"CAST(NULL AS {types.duckdb(array.type.element)})"
    # In DuckDB, the result of reducing a list must have the list's element type.
    items = (
        f"[{{'made': CAST({start.sql} AS {name}), 'each': {nothing}}}] || "
        f"list_transform({array.sql}, lambda {left}: {{'made': CAST(NULL AS {name}), 'each': {left}}})"
    )
    step = _let(dict(zip(names, (f"{left}.made", f"{right}.each"), strict=True)), body.sql)
    made = f"{{'made': CAST({step} AS {name}), 'each': {nothing}}}"
    folded = f"list_reduce({items}, lambda {left}, {right}: {made}).made"
    found = Typed(folded, maybe(type_))
    if finish:
        (last,), body = _applied(finish[0], type_)
        found = Typed(_let({last: folded}, _known(body).sql), maybe(body.type))
    return Typed(f"(CASE WHEN {array.sql} IS NOT NULL THEN {found.sql} END)", found.type)


def _zipped(arguments: Sequence[Typed]) -> Typed:
    left, right, function = arguments
    names, body = _applied(function, left.type.element, right.type.element)
    if len(names) < 2:
        raise Refusal("the lambda must have two parameters: an element of the first array, and one of the second array")
    (pair,) = variables(left.sql, right.sql, body.sql, *names)
    a, b = names
    made = _let({a: f"{pair}[1]", b: f"{pair}[2]"}, _known(body).sql)
    sql = f"list_transform(list_zip({left.sql}, {right.sql}), lambda {pair}: {made})"
    known = f"{left.sql} IS NOT NULL AND {right.sql} IS NOT NULL"
    nullable = left.type.nullable or right.type.nullable
    return Typed(f"(CASE WHEN {known} THEN {sql} END)", with_null(array_of(body.type), nullable))


def _of_entry(map_: Typed, function: Typed) -> tuple[str, str, Typed]:
    """Compile a lambda over a map's keys and values; return the DuckDB lambda's parameter, an entry, and its body."""
    names, body = _applied(function, STRING, map_.type.element)
    if len(names) < 2:
        raise Refusal("the lambda must have two parameters: a key and its value")
    (entry,) = variables(map_.sql, body.sql, *names)
    key, value = names
    made = _let({key: f"{entry}.key", value: f"{entry}.value"}, body.sql)
    return entry, made, body


def _of_map(map_: Typed, entries: str, value: Type) -> Typed:
    return Typed(
        f"(CASE WHEN {map_.sql} IS NOT NULL THEN map_from_entries({entries}) END)",
        with_null(map_of(value), map_.type.nullable),
    )


def _filtered_map(arguments: Sequence[Typed]) -> Typed:
    map_, function = arguments
    entry, made, body = _of_entry(map_, function)
    _condition(body)
    passes = f"COALESCE(CAST({made} AS BOOLEAN), FALSE)"
    return _of_map(map_, f"list_filter(map_entries({map_.sql}), lambda {entry}: {passes})", map_.type.element)


def _new_keys(arguments: Sequence[Typed]) -> Typed:
    map_, function = arguments
    entry, made, body = _of_entry(map_, function)
    if family(body.type) != "string":
        raise Refusal(f"the keys of a MAP must be text, not {body.type.sql}: write CAST(… AS STRING)")
    changed = f"{{'key': {made}, 'value': {entry}.value}}"
    return _of_map(map_, f"list_transform(map_entries({map_.sql}), lambda {entry}: {changed})", map_.type.element)


def _new_values(arguments: Sequence[Typed]) -> Typed:
    map_, function = arguments
    entry, made, body = _of_entry(map_, function)
    changed = f"{{'key': {entry}.key, 'value': {made}}}"
    entries = f"list_transform(map_entries({map_.sql}), lambda {entry}: {changed})"
    return _of_map(map_, entries, _known(body).type)


def _zipped_maps(arguments: Sequence[Typed]) -> Typed:
    left, right, function = arguments
    names, body = _applied(function, STRING, left.type.element, right.type.element)
    if len(names) < 3:
        raise Refusal(
            "the lambda must have three parameters: the key, its value in the first map, and its value in the second"
        )
    (key,) = variables(left.sql, right.sql, body.sql, *names)
    inner = (key, f"map_extract({left.sql}, {key})[1]", f"map_extract({right.sql}, {key})[1]")
    made = _let(dict(zip(names, inner, strict=True)), _known(body).sql)
    keys = once(f"(map_keys({left.sql}) || map_keys({right.sql}))")
    entries = f"list_transform({keys}, lambda {key}: {{'key': {key}, 'value': {made}}})"
    known = f"{left.sql} IS NOT NULL AND {right.sql} IS NOT NULL"
    nullable = left.type.nullable or right.type.nullable
    return Typed(f"(CASE WHEN {known} THEN map_from_entries({entries}) END)", with_null(map_of(body.type), nullable))


_INDEX = "A second parameter is the index, from 0."

FUNCTIONS = (
    ScalarFunction("TRANSFORM", "array, x -> value", "ARRAY of the function's results", _transformed, _INDEX),
    ScalarFunction("FILTER", "array, x -> condition", "the array's type", _filtered, _INDEX),
    ScalarFunction("EXISTS", "array, x -> condition", maybe(BOOLEAN), lambda given: _decided(given, by=True)),
    ScalarFunction("FORALL", "array, x -> condition", maybe(BOOLEAN), lambda given: _decided(given, by=False)),
    ScalarFunction(
        "AGGREGATE REDUCE",
        "array, value, (x y) -> value",
        "the type of the start, or of the last function's result",
        _folded,
    ),
    ScalarFunction(
        "AGGREGATE REDUCE",
        "array, value, (x y) -> value, x -> value",
        "the type of the start, or of the last function's result",
        _folded,
    ),
    ScalarFunction("ZIP_WITH", "array, array, (x y) -> value", "ARRAY of the function's results", _zipped),
    ScalarFunction("MAP_FILTER", "map, (k v) -> condition", "the map's type", _filtered_map),
    ScalarFunction("MAP_ZIP_WITH", "map, map, (k v w) -> value", "MAP of the function's results", _zipped_maps),
    ScalarFunction(
        "TRANSFORM_KEYS", "map, (k v) -> value", "the map's type", _new_keys, "Duplicate keys are an error."
    ),
    ScalarFunction("TRANSFORM_VALUES", "map, (k v) -> value", "MAP of the function's results", _new_values),
)
