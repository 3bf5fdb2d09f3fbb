"""Functions that create maps and structs. The keys of a map are text, as in Avro."""

from __future__ import annotations

from collections.abc import Sequence

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Record, Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import types
from rowkind.service.plan.scalar.casts_of_nested import variables
from rowkind.service.plan.scalar.functions.arrays import listed
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.functions.patterns import plain_text
from rowkind.service.plan.scalar.typed import Typed, unite
from rowkind.service.plan.scalar.types import STRING, array_of, family, map_of, struct_of


def _keys(type_: Type) -> None:
    if family(type_) != "string":
        raise Refusal(f"the keys of a MAP must be text, not {type_.sql}: write CAST(… AS STRING)")


def _map(arguments: Sequence[Typed]) -> Typed:
    if len(arguments) % 2:
        raise Refusal("MAP takes alternating keys and values, but the last key has no value")
    keys, values = listed(arguments[0::2]), listed(arguments[1::2])
    _keys(keys.type.element)
    return Typed(f"map({keys.sql}, {values.sql})", map_of(values.type.element))


def _of_arrays(arguments: Sequence[Typed]) -> Typed:
    keys, values = arguments
    _keys(keys.type.element)
    sql = f"(CASE WHEN {keys.sql} IS NOT NULL AND {values.sql} IS NOT NULL THEN map({keys.sql}, {values.sql}) END)"
    nullable = keys.type.nullable or values.type.nullable
    return Typed(sql, types.with_null(map_of(values.type.element), nullable))


def _of_entries(arguments: Sequence[Typed]) -> Typed:
    (entries,) = arguments
    fields = entries.type.element.fields
    if len(fields) != 2:
        raise Refusal("each entry of MAP_FROM_ENTRIES must be a STRUCT of a key and a value")
    _keys(fields[0].type)
    array = entries.sql
    sql = f"(CASE WHEN len({array}) = list_count({array}) THEN map_from_entries({array}) END)"
    return Typed(sql, maybe(map_of(fields[1].type)))


def _entries(arguments: Sequence[Typed]) -> Type:
    """ARRAY of STRUCT<key, value>."""
    return array_of(struct_of((("key", STRING), ("value", arguments[0].type.element))))


def _values(arguments: Sequence[Typed]) -> Type:
    """ARRAY of the map's values."""
    return array_of(arguments[0].type.element)


def _concatenated(arguments: Sequence[Typed]) -> Typed:
    made, type_ = unite(arguments)
    entries = " || ".join(f"map_entries({each.sql})" for each in made)
    known = " AND ".join(f"{each.sql} IS NOT NULL" for each in made)
    nullable = any(each.type.nullable for each in arguments)
    return Typed(f"(CASE WHEN {known} THEN map_from_entries({entries}) END)", types.with_null(type_, nullable))


def _of_text(arguments: Sequence[Typed]) -> str:
    text, *delimiters = arguments
    between, behind = (plain_text(str(each.literal)) for each in (*delimiters, *_DELIMITERS[len(delimiters) :]))
    (each,) = variables(text.sql)
    after = f"CASE WHEN contains({each}, {behind}) THEN {each}[instr({each}, {behind}) + length({behind}):] END"
    entry = f"{{'key': CASE WHEN contains({each}, {behind}) THEN {each}[:instr({each}, {behind}) - 1] ELSE {each} END, "
    entries = f"list_transform(string_split({text.sql}, {between}), lambda {each}: {entry}'value': {after}}})"
    return f"(CASE WHEN {text.sql} IS NOT NULL THEN map_from_entries({entries}) END)"


_DELIMITERS = (Typed("", STRING, ","), Typed("", STRING, ":"))


def _struct(arguments: Sequence[Typed]) -> Typed:
    if len(arguments) % 2:
        raise Refusal("NAMED_STRUCT needs a name and a value for each field")
    names = [name.literal for name in arguments[0::2]]
    values = arguments[1::2]
    if None in names:
        raise Refusal("a field's name must be a string literal")
    try:
        Record.of({str(name): "INT" for name in names})
    except SchemaError as error:
        raise Refusal(str(error)) from None
    if len({str(name).lower() for name in names}) < len(names):
        raise Refusal("two fields have the same name: rename one of them with AS")
    if any(family(value.type) == "null" for value in values):
        raise Refusal("a field that is always NULL has no type: write CAST(NULL AS …)")
    listed = ", ".join(f"'{name}': {value.sql}" for name, value in zip(names, values, strict=True))
    fields = zip(map(str, names), (value.type for value in values), strict=True)
    return Typed(f"{{{listed}}}", struct_of(fields))


_TEXTS = map_of(STRING)
_PLAIN = "Delimiters are plain text."

FUNCTIONS = (
    ScalarFunction("NAMED_STRUCT", "value...", "STRUCT of the fields", _struct, keeps_null=False),
    ScalarFunction(
        "STRUCT", "value...", "STRUCT of the fields", _struct, "Names are aliases, or col1, …", keeps_null=False
    ),
    ScalarFunction(
        "MAP", "value...", "MAP of the values' common type", _map, "Duplicate keys are an error.", keeps_null=False
    ),
    ScalarFunction(
        "MAP_FROM_ARRAYS",
        "array, array",
        "MAP of the second array's elements",
        _of_arrays,
        "Duplicate keys are an error.",
    ),
    ScalarFunction(
        "MAP_FROM_ENTRIES",
        "array of structs",
        "MAP of the entries' values",
        _of_entries,
        "Duplicate keys are an error.",
    ),
    ScalarFunction("MAP_KEYS", "map", array_of(STRING), "map_keys({0})"),
    ScalarFunction("MAP_VALUES", "map", _values, "map_values({0})"),
    ScalarFunction("MAP_ENTRIES", "map", _entries, "(CASE WHEN {0} IS NOT NULL THEN map_entries({0}) END)"),
    ScalarFunction(
        "MAP_CONCAT",
        "map...",
        "the arguments' common type",
        _concatenated,
        "Duplicate keys are an error.",
        keeps_null=False,
    ),
    ScalarFunction("STR_TO_MAP", "text", _TEXTS, _of_text, "Duplicate keys are an error."),
    ScalarFunction("STR_TO_MAP", "text, 'text'", _TEXTS, _of_text, _PLAIN),
    ScalarFunction("STR_TO_MAP", "text, 'text', 'text'", _TEXTS, _of_text, _PLAIN),
)
