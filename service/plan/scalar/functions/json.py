"""Functions on JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rowkind.avro.errors import SchemaError
from rowkind.avro.schema import Type
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.scalar import casts, types
from rowkind.service.plan.scalar.casts_of_nested import field, variables
from rowkind.service.plan.scalar.functions.function import ScalarFunction, maybe
from rowkind.service.plan.scalar.functions.time_formats import formatted
from rowkind.service.plan.scalar.typed import Typed, text_literal
from rowkind.service.plan.scalar.types import INT, STRING, array_of, canonical, family

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\['([^'\"\\]+)'\]")


def _found(arguments: Sequence[Typed]) -> str:
    text, path = arguments[0].sql, str(arguments[1].literal)
    if not path.startswith("$") or _STEP.sub("", path[1:]):
        raise Refusal(f"{path!r} is not a supported path: write $.name[0]['name'], without *")
    steps = "".join(f'."{a or c}"' if a or c else f"[{b}]" for a, b, c in _STEP.findall(path))
    plain = f"json_extract_string({text}, {text_literal('$' + steps)})"
    listed = text_literal(json.dumps([a or c or int(b) for a, b, c in _STEP.findall(path)]))
    # If an object contains a name several times, the path follows the first occurrence that leads to a value.
    twice = [
        f"len(string_split({text}, {text_literal(json.dumps(a or c))})) > 2" for a, b, c in _STEP.findall(path) if not b
    ]
    if twice or not steps:
        again = f"CASE WHEN {' OR '.join(twice) or 'TRUE'} THEN spark_json_found({text}, {listed}) END"
        plain = f"COALESCE({plain}, {again})"
    return f"(CASE WHEN {_strict(text)} THEN {plain} ELSE spark_json_found({text}, {listed}) END)"


def _strict(text: str) -> str:
    """Return SQL that tests whether DuckDB and Spark read a text as the same JSON value.

    DuckDB also accepts NaN, infinity and trailing commas, and writes numbers with many digits differently.
    """
    return f"(json_valid({text}) AND NOT regexp_matches({text}, {text_literal(_ODD)}))"


_ODD = r"(?i)nan|inf|-0|[\x{10000}-\x{10FFFF}]|\\ud|\de[-+]?\d|\d{8}|0\.000|,\s*[}\]]"


def schema_of(text: str) -> Type:
    """Return the type in a schema literal: fields such as `a INT, b ARRAY<STRING>`, or one ARRAY, MAP or STRUCT type.

    Raises Refusal.
    """
    try:
        found = Type.of(text if re.match(r"\s*(ARRAY|MAP|STRUCT)\s*<", text, re.IGNORECASE) else f"STRUCT<{text}>")
    except SchemaError as error:
        raise Refusal(str(error)) from None
    for inner in found.walk():
        if not types.is_nested(inner) and family(inner) not in ("boolean", "integer", "float", "decimal", "string"):
            raise Refusal(f"FROM_JSON cannot read {inner.sql}: read a STRING, and CAST it")
        if re.search(r"TINYINT|SMALLINT", text, re.IGNORECASE):
            raise Refusal("FROM_JSON cannot read TINYINT and SMALLINT: read an INT")
    return canonical(found.as_nullable())


def _outline(type_: Type) -> Any:
    if type_.kind == "record":
        return {inner.name: _outline(inner.type) for inner in type_.fields}
    return [type_.kind, _outline(type_.element)] if types.is_nested(type_) else type_.sql


def _read(arguments: Sequence[Typed]) -> Typed:
    text, schema = arguments
    type_ = schema_of(str(schema.literal))
    outline = text_literal(json.dumps(_outline(type_)))
    return Typed(f"CAST(CAST(spark_from_json({text.sql}, {outline}) AS JSON) AS {types.duckdb(type_)})", type_)


_PLAIN_SCALE = 6
"""If a decimal's scale exceeds this number, and its first six decimal places are zeros, Java writes an exponent."""


def _written(arguments: Sequence[Typed]) -> str:
    return written(arguments[0].sql, arguments[0].type)


def written(sql: str, type_: Type) -> str:
    """Return DuckDB SQL for a value as JSON text.

    A struct's NULL fields are omitted. If the value itself is NULL, so is the result.
    """
    match type_.kind:
        case "record":
            fields = [
                f"{text_literal(json.dumps(each.name) + ':')} || {written(field(sql, each.name), each.type)}"
                for each in type_.fields
            ]
            return f"(CASE WHEN {sql} IS NOT NULL THEN '{{' || concat_ws(',', {', '.join(fields)}) || '}}' END)"
        case "array":
            (each,) = variables(sql)
            items = f"list_transform({sql}, lambda {each}: COALESCE({written(each, type_.element)}, 'null'))"
            return f"('[' || array_to_string({items}, ',') || ']')"
        case "map":
            (each,) = variables(sql)
            value = f"COALESCE({written(f'{each}.value', type_.element)}, 'null')"
            key = written(f"{each}.key", STRING)
            items = f"list_transform(map_entries({sql}), lambda {each}: {key} || ':' || {value})"
            return f"(CASE WHEN {sql} IS NOT NULL THEN '{{' || array_to_string({items}, ',') || '}}' END)"
    return _plain(sql, type_)


def _plain(sql: str, type_: Type) -> str:
    """Return DuckDB SQL that converts a value that is not an array, map or struct to JSON text."""
    text = str(casts.cast(sql, type_, STRING))
    match family(type_):
        case "string":
            return f"CAST(to_json({sql}) AS VARCHAR)"
        case "binary":
            return f"('\"' || to_base64({sql}) || '\"')"
        case "date":
            return f"('\"' || {text} || '\"')"
        case "timestamp":
            return formatted(f"CAST({sql} AS TIMESTAMP)", '"%Y-%m-%dT%H:%M:%S.%gZ"')
        case "local":
            return formatted(sql, '"%Y-%m-%dT%H:%M:%S.%g"')
        case "float":
            return f"(CASE WHEN isfinite({sql}) THEN {text} ELSE '\"' || {text} || '\"' END)"
        case "decimal" if type_.scale > _PLAIN_SCALE:
            return f"(CASE WHEN abs({sql}) >= 0.000001 THEN {text} ELSE spark_short_decimal({text}) END)"
        case "time" | None:
            raise Refusal(f"TO_JSON cannot write {type_.sql}: CAST it to STRING first")
    return text


_FIELDS = "Fields that are NULL are omitted."
_SCHEMA = (
    "Like from_json with its default options: values that do not fit are NULL, as are all fields of a "
    "struct if the text is not JSON. Field names are case-sensitive. Dates and times are not supported: read "
    "them as STRING, and cast them."
)

FUNCTIONS = (
    ScalarFunction(
        "GET_JSON_OBJECT",
        "text, 'text'",
        maybe(STRING),
        _found,
        "Paths cannot contain *.",
    ),
    ScalarFunction(
        "JSON_ARRAY_LENGTH",
        "text",
        maybe(INT),
        lambda given: (
            f"(CASE WHEN {_strict(given[0].sql)} THEN CASE WHEN json_type({given[0].sql}) = 'ARRAY' "
            f"THEN CAST(json_array_length({given[0].sql}) AS INTEGER) END ELSE spark_json_length({given[0].sql}) END)"
        ),
    ),
    ScalarFunction("JSON_OBJECT_KEYS", "text", maybe(array_of(STRING)), "spark_json_keys({0})"),
    ScalarFunction("FROM_JSON", "text, 'text'", "the schema's type", _read, _SCHEMA),
    *(ScalarFunction("TO_JSON", kind, STRING, _written, _FIELDS) for kind in ("struct", "array", "map")),
)
