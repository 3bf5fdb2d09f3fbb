"""Casts between SQL types, compiled to DuckDB SQL with Spark SQL's semantics.

A CAST fails on a value that it cannot convert, as in Spark's ANSI mode; TRY_CAST returns NULL for such a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal, InvalidOperation

from rowkind.avro.schema import Type
from rowkind.avro.time_text import date_text
from rowkind.avro.timestamp_text import date_of, moment_of
from rowkind.service.plan.scalar import casts_of_nested, casts_of_text, types
from rowkind.service.plan.scalar.types import Family, family

_WIDE = Context(prec=100)
_NEAR = 700_000
"""For dates at most this many days before or after 1970-01-01, the year has four digits."""
_EXACT_DIGITS = 15
"""A decimal with at most this many digits becomes a DOUBLE by one exact division; a longer decimal, through text."""


def cast(sql: str, source: Type, to: Type, *, strict: bool = True) -> str | None:
    """Return DuckDB SQL that casts a value like Spark's CAST or TRY_CAST, or None if the cast is not supported."""
    if source.required == to.required:
        return sql
    if types.is_nested(source):
        return casts_of_nested.cast(sql, source, to, lambda inner, a, b: cast(inner, a, b, strict=strict))
    of, into = family(source), family(to)
    if of == "null":
        return f"CAST(NULL AS {types.duckdb(to)})"
    if of == into and of not in ("decimal", "integer", "float"):
        # The two types have the same values in expressions: an enum is text, and times are in microseconds.
        return sql
    if of == "string":
        return casts_of_text.cast(sql, to, strict=strict)
    if into == "string":
        return _to_text(sql, source)
    template = _template(source, to)
    double = sql if source.sql == "DOUBLE" else f"CAST({sql} AS DOUBLE)"
    micros = f"epoch_us(CAST({sql} AS TIMESTAMP))"
    word = "CAST" if strict else "TRY_CAST"
    return template and template.format(sql=sql, double=double, micros=micros, word=word, name=types.duckdb(to))


def _template(source: Type, to: Type) -> str | None:
    families = family(source), family(to)
    if families == ("float", "float") and to.sql == "FLOAT":
        return "spark_float({sql})"
    if families == ("decimal", "float") and source.precision <= _EXACT_DIGITS and to.sql == "DOUBLE":
        return "CAST({sql} AS DOUBLE)"
    return _CASTS.get(families)


_CASTS: Mapping[tuple[Family | None, Family | None], str] = {
    ("integer", "integer"): "{word}({sql} AS {name})",
    ("integer", "decimal"): "{word}({sql} AS {name})",
    ("integer", "float"): "{word}({sql} AS {name})",
    ("integer", "boolean"): "({sql} <> 0)",
    ("integer", "timestamp"): "CAST(make_timestamp(CAST({sql} AS BIGINT) * 1000000) AS TIMESTAMPTZ)",
    # Both Spark and DuckDB round decimals half away from zero.
    ("decimal", "decimal"): "{word}({sql} AS {name})",
    # Spark truncates, DuckDB rounds.
    ("decimal", "integer"): "{word}(trunc({sql}) AS {name})",
    ("decimal", "float"): "CAST(CAST({sql} AS VARCHAR) AS {name})",
    ("decimal", "boolean"): "({sql} <> 0)",
    ("decimal", "timestamp"): "CAST(make_timestamp({word}(trunc({sql} * 1000000) AS BIGINT)) AS TIMESTAMPTZ)",
    ("float", "float"): "{word}({sql} AS {name})",
    ("float", "integer"): "{word}(trunc({sql}) AS {name})",
    # Spark rounds the number as it is written (1.005 becomes 1.01), and turns NaN and infinity into NULL.
    ("float", "decimal"): "(CASE WHEN isfinite({sql}) THEN {word}(CAST({double} AS VARCHAR) AS {name}) END)",
    ("float", "boolean"): "({sql} <> 0)",
    ("float", "timestamp"): (
        "CAST(make_timestamp({word}(trunc(CAST({sql} AS DOUBLE) * 1000000) AS BIGINT)) AS TIMESTAMPTZ)"
    ),
    ("boolean", "integer"): "{word}(CAST({sql} AS INTEGER) AS {name})",
    ("boolean", "decimal"): "{word}(CAST({sql} AS INTEGER) AS {name})",
    ("boolean", "float"): "{word}(CAST({sql} AS INTEGER) AS {name})",
    ("date", "timestamp"): "CAST({sql} AS {name})",
    ("date", "local"): "CAST({sql} AS {name})",
    ("local", "timestamp"): "CAST({sql} AS {name})",
    ("local", "date"): "CAST({sql} AS {name})",
    ("timestamp", "local"): "CAST({sql} AS {name})",
    ("timestamp", "date"): "CAST({sql} AS {name})",
    ("timestamp", "integer"): "{word}(spark_floor_div({micros}, 1000000) AS {name})",
    ("timestamp", "float"): "CAST({micros} / 1000000.0::DOUBLE AS {name})",
    ("timestamp", "decimal"): "{word}(CAST({micros} AS DECIMAL(20,0)) * CAST(0.000001 AS DECIMAL(7,6)) AS {name})",
}
"""The casts between type families, except those from text, to text and from NULL."""


def may_lose(source: Type, to: Type) -> bool:
    """Return whether a cast returns NULL for some values that are not NULL, even if it is a strict CAST."""
    return family(source) == "float" and family(to) == "decimal"


def _to_text(sql: str, source: Type) -> str | None:
    match family(source):
        case "decimal" if source.precision == source.scale:
            # DuckDB would omit the zero before the decimal point.
            whole = f"CAST(CAST({sql} AS DECIMAL(38,{min(source.scale, 37)})) AS VARCHAR)"
            return whole if source.scale < 38 else f"replace(CAST({sql} AS VARCHAR), '.', '0.')"
        case "integer" | "decimal" | "boolean" | "time":
            return f"CAST({sql} AS VARCHAR)"
        case "date":
            return f"spark_date_text({sql})"
        case "local":
            return f"spark_moment_text({sql})"
        case "timestamp":
            return f"spark_moment_text(CAST({sql} AS TIMESTAMP))"
        case "float":
            return f"spark_{'double' if source.sql == 'DOUBLE' else 'float'}_text({sql})"
        case "binary":
            return f"spark_decoded({sql})"
    return None


def constant(text: str, to: Type) -> str | None:
    """Return DuckDB SQL for a literal's text as a value of type `to`, or None if the text is not such a value."""
    text = text.strip()
    match family(to):
        case "string":
            return "'" + text.replace("'", "''") + "'"
        case "binary":
            return f"unhex('{text.encode().hex()}')"
        case "boolean" if text.lower() in casts_of_text.TRUE + casts_of_text.FALSE:
            return "TRUE" if text.lower() in casts_of_text.TRUE else "FALSE"
        case "integer" if re.fullmatch(r"[+-]?\d+", text):
            return f"CAST({text} AS {types.duckdb(to)})" if _fits(text, to) else None
        case "decimal" if re.fullmatch(casts_of_text.NUMBER, text):
            return f"CAST('{text}' AS {types.duckdb(to)})" if _fits(text, to) else None
        case "float" if re.fullmatch(casts_of_text.NUMBER, text) or text.lower() in ("nan", "infinity", "-infinity"):
            return f"CAST('{text}' AS {types.duckdb(to)})"
    return _time(text, to)


def _time(text: str, to: Type) -> str | None:
    match family(to):
        case "date" if (days := date_of(text)) is not None:
            return f"(DATE '1970-01-01' + {days})" if abs(days) > _NEAR else f"DATE '{date_text(days)}'"
        case "timestamp" if (micros := moment_of(text, instant=True)) is not None:
            return f"CAST(make_timestamp({micros}) AS TIMESTAMPTZ)"
        case "local" if (micros := moment_of(text, instant=False)) is not None:
            return f"make_timestamp({micros})"
    return None


def _fits(text: str, to: Type) -> bool:
    try:
        number = Decimal(text)
        rounded = number.quantize(Decimal(1).scaleb(-to.scale), context=_WIDE) if to.logical == "decimal" else number
    except InvalidOperation:
        return False
    if to.logical == "decimal":
        return bool(abs(rounded) < 10 ** (to.precision - to.scale))
    bits = 31 if to.sql == "INT" else 63
    return bool(-(2**bits) <= number < 2**bits)
